package tokenizer

import (
	"encoding/json"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/faas-infer/faas-infer/model/tokenizer/characters"
	"github.com/faas-infer/faas-infer/model/tokenizer/pattern"
)

// normalizer changes a text before it is split. It may overwrite what it gets. moved says that the first
// character no longer comes from the begin of the text, as Metaspace with prepend_scheme "first" asks.
type normalizer func(text []byte) (result []byte, moved bool, err error)

// parseNormalizer reads the field normalizer, or one of a sequence; nil changes nothing.
func parseNormalizer(path string, raw json.RawMessage) (normalizer, error) {
	if raw == nil {
		return nil, nil
	}
	o, kind, err := component(path, raw)
	if err != nil {
		return nil, err
	}
	n := byForm(kind)
	switch kind {
	case "NFC", "NFD", "NFKC", "NFKD":
	case "BertNormalizer", "Bert":
		n = parseBert(o)
	case "Sequence":
		n = inTurn(components(o, "normalizers", parseNormalizer))
	case "Lowercase":
		n = always(lowercase)
	case "StripAccents":
		n = without(characters.Combining)
	case "Nmt":
		n = nmt
	case "Replace":
		n = parseReplace(o)
	case "Prepend":
		var prefix string
		o.required("prepend", &prefix)
		n = always(func(text []byte) []byte {
			if len(text) == 0 {
				return text
			}
			return append([]byte(prefix), text...)
		})
	case "Strip":
		var left, right bool
		o.required("strip_left", &left)
		o.required("strip_right", &right)
		n = func(text []byte) ([]byte, bool, error) {
			stripped, moved := strip(text, left, right)
			return stripped, moved, nil
		}
	case "Precompiled":
		n = parsePrecompiled(o)
	case "ByteLevel":
		n = always(func(text []byte) []byte { return appendByteLevel(nil, string(text)) })
	default:
		o.fail("type", "the normalizer %.100q is not supported", kind)
	}
	return n, o.close()
}

func byForm(kind string) normalizer {
	form, ok := map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}[kind]
	if !ok {
		return nil
	}
	return always(func(text []byte) []byte { return normalizeForm(form, text) })
}

// always makes a normalizer of one that neither fails nor moves the begin.
func always(change func([]byte) []byte) normalizer {
	return func(text []byte) ([]byte, bool, error) { return change(text), false, nil }
}

// inTurn runs normalizers one after another.
func inTurn(all []normalizer) normalizer {
	return func(text []byte) ([]byte, bool, error) {
		moved := false
		for _, n := range all {
			if n == nil {
				continue
			}
			result, m, err := n(text)
			if err != nil {
				return nil, false, err
			}
			text, moved = result, moved || m
		}
		return text, moved, nil
	}
}

// filter removes characters in place.
func filter(text []byte, remove func(rune) bool) ([]byte, bool) {
	out, moved := text[:0], false
	for at := 0; at < len(text); {
		r, n := utf8.DecodeRune(text[at:])
		if remove(r) {
			moved = moved || at == 0
		} else {
			out = append(out, text[at:at+n]...)
		}
		at += n
	}
	return out, moved
}

// without removes the characters with a flag.
func without(flag characters.Properties) normalizer {
	return func(text []byte) ([]byte, bool, error) {
		out, moved := filter(text, func(r rune) bool { return characters.Of(r).Is(flag) })
		return out, moved, nil
	}
}

func lowercase(text []byte) []byte {
	if isASCII(text) {
		for i, b := range text {
			if 'A' <= b && b <= 'Z' {
				text[i] = b + 'a' - 'A'
			}
		}
		return text
	}
	out := make([]byte, 0, len(text)+8)
	for at := 0; at < len(text); {
		r, n := utf8.DecodeRune(text[at:])
		out = characters.ToLower(out, r)
		at += n
	}
	return out
}

func strip(text []byte, left, right bool) (stripped []byte, moved bool) {
	for left && len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if !characters.Of(r).Is(characters.Space) {
			break
		}
		text, moved = text[n:], true
	}
	for right && len(text) > 0 {
		r, n := utf8.DecodeLastRune(text)
		if !characters.Of(r).Is(characters.Space) {
			break
		}
		text = text[:len(text)-n]
	}
	return text, moved
}

// nmt removes control characters and makes spaces of others, as sentencepiece does for translation.
func nmt(text []byte) ([]byte, bool, error) {
	kept, moved := filter(text, func(r rune) bool {
		return r >= 1 && r <= 8 || r == 0xB || r >= 0xE && r <= 0x1F || r == 0x7F || r == 0x8F || r == 0x9F
	})
	out := make([]byte, 0, len(kept))
	for _, r := range string(kept) {
		switch {
		case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, r >= 0x200B && r <= 0x200F, r == 0x2028,
			r == 0x2029, r == 0x2581, r == 0xFEFF, r == utf8.RuneError:
			r = ' '
		}
		out = utf8.AppendRune(out, r)
	}
	return out, moved, nil
}

// parseReplace reads the normalizer Replace.
func parseReplace(o *object) normalizer {
	var content string
	o.required("content", &content)
	p := parsePattern(o)
	if p == nil {
		return nil
	}
	return func(text []byte) ([]byte, bool, error) {
		whole, out, last, moved := string(text), []byte(nil), 0, false
		matcher := p.Match(whole)
		for len(whole) > 0 {
			begin, end, ok, err := matcher.Next()
			if err != nil {
				return nil, false, err
			}
			if !ok {
				break
			}
			// The first character takes the place of the last one that it replaces.
			if begin == 0 && (content == "" && end > 0 || utf8.RuneCountInString(whole[:end]) > 1) {
				moved = true
			}
			out = append(append(out, whole[last:begin]...), content...)
			last = end
		}
		if last == 0 && out == nil {
			return text, false, nil
		}
		return append(out, whole[last:]...), moved, nil
	}
}

// parsePattern reads the field pattern, {"String": ...} or {"Regex": ...}; nil after a mistake.
func parsePattern(o *object) *pattern.Pattern {
	var both struct{ String, Regex *string }
	var keys map[string]string
	o.required("pattern", &keys)
	for key, text := range keys {
		switch key {
		case "String":
			both.String = &text
		case "Regex":
			both.Regex = &text
		}
	}
	if len(keys) != 1 || both.String == nil && both.Regex == nil {
		o.fail("pattern", `it must have either "String" or "Regex"`)
		return nil
	}
	compile, source := pattern.Compile, both.Regex
	if both.String != nil {
		compile, source = pattern.Literal, both.String
	}
	p, err := compile(*source)
	if err != nil {
		o.fail("pattern", "%w", err)
		return nil
	}
	return p
}

// bert is BertNormalizer.
type bert struct{ clean, chinese, accents, lower bool }

func parseBert(o *object) normalizer {
	var b bert
	o.required("clean_text", &b.clean)
	o.required("handle_chinese_chars", &b.chinese)
	o.required("lowercase", &b.lower)
	b.accents = b.lower
	o.optional("strip_accents", &b.accents)
	return b.normalize
}

func (b bert) normalize(text []byte) ([]byte, bool, error) {
	text, ascii, moved := b.cleaned(text)
	if b.accents && !ascii {
		text = normalizeForm(norm.NFD, text)
		var first bool
		text, first = filter(text, func(r rune) bool {
			return r >= utf8.RuneSelf && characters.Of(r).Is(characters.Nonspacing)
		})
		moved = moved || first
	}
	if b.lower {
		text = lowercase(text)
	}
	return text, moved, nil
}

// cleaned removes control characters, makes other spaces plain ones, and puts spaces around Chinese
// characters.
func (b bert) cleaned(text []byte) (out []byte, ascii, moved bool) {
	out, ascii = make([]byte, 0, len(text)+8), true
	for at := 0; at < len(text); {
		c := text[at]
		if c < utf8.RuneSelf {
			switch {
			case !b.clean || c > ' ' && c != 0x7F:
				out = append(out, c)
			case c == ' ', c == '\t', c == '\n', c == '\r':
				out = append(out, ' ')
			default:
				moved = moved || at == 0
			}
			at++
			continue
		}
		ascii = false
		r, n := utf8.DecodeRune(text[at:])
		switch p := characters.Of(r); {
		case b.clean && (p.Is(characters.Other) || r == utf8.RuneError):
			moved = moved || at == 0
		case b.clean && p.Is(characters.Space):
			out = append(out, ' ')
		case b.chinese && chinese(r):
			out = append(append(append(out, ' '), text[at:at+n]...), ' ')
		default:
			out = append(out, text[at:at+n]...)
		}
		at += n
	}
	return out, ascii, moved
}

// chinese reports whether BertNormalizer puts spaces around a character: the blocks of CJK ideographs that
// were there when BERT was written.
func chinese(r rune) bool {
	for _, block := range [...][2]rune{{0x4E00, 0x9FFF}, {0x3400, 0x4DBF}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
		{0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF}, {0x2F800, 0x2FA1F}} {
		if block[0] <= r && r <= block[1] {
			return true
		}
	}
	return false
}
