package tokenizer

import (
	"strings"
	"unicode/utf8"

	"github.com/faas-infer/faas-infer/model/tokenizer/characters"
)

// byteCharacters has the character that stands for each byte in a byte-level vocabulary, as GPT-2 chose them:
// itself for a printable one of Latin-1, and those from U+0100 on, in order, for the others.
var byteCharacters = func() (all [256]rune) {
	other := rune(256)
	for b := range all {
		if r := rune(b); r >= '!' && r <= '~' || r >= 0xA1 && r <= 0xAC || r >= 0xAE {
			all[b] = r
		} else {
			all[b] = other
			other++
		}
	}
	return all
}()

// appendByteLevel appends the characters that stand for the bytes of a text.
func appendByteLevel(out []byte, text string) []byte {
	for i := range len(text) {
		out = utf8.AppendRune(out, byteCharacters[text[i]])
	}
	return out
}

// parseByteLevel reads the pre-tokenizer ByteLevel.
func parseByteLevel(o *object) preTokenizer {
	var space bool
	regex := true
	o.required("add_prefix_space", &space)
	o.optional("use_regex", &regex)
	o.ignore("trim_offsets")
	ascii := flagsOfASCII()
	return preTokenizer{bytes: true, split: func(words []piece, p piece) ([]piece, error) {
		if space && !strings.HasPrefix(p.text, " ") {
			p.text = " " + p.text
		}
		if !regex {
			return append(words, p), nil
		}
		for at := 0; at < len(p.text); {
			end := wordEnd(&ascii, p.text, at)
			words = append(words, p.part(at, end))
			at = end
		}
		return words, nil
	}}
}

// kinds of characters in GPT-2's pattern.
const (
	kindOther = iota
	kindLetter
	kindNumber
	kindSpace
)

var letters, numbers = characters.Categories("L"), characters.Categories("N")

// kindAt returns the kind of the character at a place, and its length, which is 0 at the end.
func kindAt(ascii *[utf8.RuneSelf]characters.Properties, text string, at int) (kind, length int) {
	if at >= len(text) {
		return kindSpace, 0
	}
	p, n := ascii[text[at]&0x7F], 1
	if text[at] >= utf8.RuneSelf {
		var r rune
		r, n = utf8.DecodeRuneInString(text[at:])
		p = characters.Of(r)
	}
	switch category := uint32(1) << p.Category(); {
	case p.Is(characters.Space):
		return kindSpace, n
	case category&letters != 0:
		return kindLetter, n
	case category&numbers != 0:
		return kindNumber, n
	}
	return kindOther, n
}

// wordEnd returns the end of the word that begins at a place, as GPT-2's pattern has it:
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func wordEnd(ascii *[utf8.RuneSelf]characters.Properties, text string, at int) int {
	if text[at] == '\'' {
		if n := contraction(text[at+1:]); n > 0 {
			return at + 1 + n
		}
	}
	begin := at
	if text[at] == ' ' {
		begin++
	}
	kind, n := kindAt(ascii, text, begin)
	if kind != kindSpace {
		end := begin
		for now := kind; now == kind && n > 0; now, n = kindAt(ascii, text, end) {
			end += n
		}
		return end
	}
	// A row of spaces leaves its last one to the word behind it.
	end, last := at, at
	for {
		kind, n := kindAt(ascii, text, end)
		if kind != kindSpace || n == 0 {
			break
		}
		last, end = end, end+n
	}
	if end < len(text) && last > at {
		return last
	}
	return end
}

// contraction returns the length of an English ending behind an apostrophe; 0 if there is none.
func contraction(text string) int {
	for _, ending := range [...]string{"s", "t", "re", "ve", "m", "ll", "d"} {
		if strings.HasPrefix(text, ending) {
			return len(ending)
		}
	}
	return 0
}
