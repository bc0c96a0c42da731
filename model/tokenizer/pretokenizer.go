package tokenizer

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/faas-infer/faas-infer/model/tokenizer/characters"
	"github.com/faas-infer/faas-infer/model/tokenizer/pattern"
)

// piece is a part of a text, at first all between two added tokens, later a word.
type piece struct {
	text string
	// first says that the piece begins where the text does.
	first bool
}

// preTokenizer splits pieces into words.
type preTokenizer struct {
	// split appends the words of a piece. Empty ones are left out later.
	split func(words []piece, p piece) ([]piece, error)
	// bytes says that the characters of every word have yet to be replaced by those that stand for their
	// bytes. That is left to the model, which does it only for words that its cache lacks.
	bytes bool
}

// parsePreTokenizer reads the field pre_tokenizer, or one of a sequence; without one, a text is one word.
func parsePreTokenizer(path string, raw json.RawMessage) (preTokenizer, error) {
	if raw == nil {
		return preTokenizer{}, nil
	}
	o, kind, err := component(path, raw)
	if err != nil {
		return preTokenizer{}, err
	}
	var t preTokenizer
	switch kind {
	case "BertPreTokenizer":
		t.split = byCharacter(characters.Space, "Removed", characters.Punctuation)
	case "Whitespace":
		t.split = splitWords
	case "WhitespaceSplit":
		t.split = byCharacter(characters.Space, "Removed", 0)
	case "CharDelimiterSplit":
		delimiter := parseCharacter(o, "delimiter")
		t.split = bySpans(charSpans(func(r rune) bool { return r == delimiter }), "Removed")
	case "Punctuation":
		behaviour := o.choice("behavior", "Isolated", behaviours...)
		t.split = byCharacter(characters.Punctuation, behaviour, 0)
	case "Digits":
		var individual bool
		o.required("individual_digits", &individual)
		t.split = byCharacter(characters.Numeric, map[bool]string{true: "Isolated", false: "Contiguous"}[individual], 0)
	case "Split":
		t.split = parseSplit(o)
	case "Metaspace":
		t.split = parseMetaspace(o)
	case "ByteLevel":
		t = parseByteLevel(o)
	case "Sequence":
		t = oneByOne(components(o, "pretokenizers", parsePreTokenizer))
	default:
		o.fail("type", "the pre-tokenizer %.100q is not supported", kind)
	}
	return t, o.close()
}

// oneByOne runs pre-tokenizers one after another, each on the words of the one before it.
func oneByOne(all []preTokenizer) preTokenizer {
	var t preTokenizer
	if len(all) > 0 {
		t.bytes = all[len(all)-1].bytes
	}
	t.split = func(words []piece, p piece) ([]piece, error) {
		now, next := []piece{p}, []piece(nil)
		for i, part := range all {
			next = next[:0]
			for _, word := range now {
				var err error
				if next, err = part.words(next, word); err != nil {
					return nil, err
				}
			}
			if part.bytes && i < len(all)-1 {
				for j := range next {
					next[j].text = string(appendByteLevel(nil, next[j].text))
				}
			}
			now, next = next, now
		}
		return append(words, now...), nil
	}
	return t
}

// words is split without empty words; without a pre-tokenizer the piece is one.
func (t *preTokenizer) words(words []piece, p piece) ([]piece, error) {
	if t.split == nil {
		return append(words, p), nil
	}
	from := len(words)
	words, err := t.split(words, p)
	if err != nil {
		return nil, err
	}
	kept := slices.DeleteFunc(words[from:], func(p piece) bool { return p.text == "" })
	return words[:from+len(kept)], nil
}

// part returns a part of a piece.
func (p piece) part(begin, end int) piece { return piece{p.text[begin:end], p.first && begin == 0} }

// splitWords splits into rows of characters of words and rows of others that are no spaces.
func splitWords(words []piece, p piece) ([]piece, error) {
	begin, last := 0, characters.Space
	for at, r := range p.text {
		now := characters.Of(r) & (characters.Space | characters.Word)
		if now != last {
			if last != characters.Space {
				words = append(words, p.part(begin, at))
			}
			begin, last = at, now
		}
	}
	if last != characters.Space {
		words = append(words, p.part(begin, len(p.text)))
	}
	return words, nil
}

// flagsOfASCII has the properties of ASCII characters.
func flagsOfASCII() (all [utf8.RuneSelf]characters.Properties) {
	for r := range all {
		all[r] = characters.Of(rune(r))
	}
	return all
}

// byCharacter splits at the characters with a flag. Characters with the flag isolated are words of their own.
func byCharacter(flag characters.Properties, behaviour string, isolated characters.Properties) func([]piece, piece) (
	[]piece, error,
) {
	ascii := flagsOfASCII()
	if behaviour != "Removed" && behaviour != "Isolated" {
		return bySpans(charSpans(func(r rune) bool { return characters.Of(r).Is(flag) }), behaviour)
	}
	if behaviour == "Isolated" {
		flag, isolated = 0, flag
	}
	return func(words []piece, p piece) ([]piece, error) {
		begin := 0
		for at := 0; at < len(p.text); {
			properties, n := ascii[p.text[at]&0x7F], 1
			if p.text[at] >= utf8.RuneSelf {
				var r rune
				r, n = utf8.DecodeRuneInString(p.text[at:])
				properties = characters.Of(r)
			}
			if properties.Is(flag | isolated) {
				if begin < at {
					words = append(words, p.part(begin, at))
				}
				if properties.Is(isolated) && !properties.Is(flag) {
					words = append(words, p.part(at, at+n))
				}
				begin = at + n
			}
			at += n
		}
		return append(words, p.part(begin, len(p.text))), nil
	}
}

// span is a part of a text that matches a pattern, or that lies between matches.
type span struct {
	begin, end int
	match      bool
}

// behaviours are the values of the field behavior.
var behaviours = []string{"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}

// bySpans splits a piece at the matches of find, and does with these what the behaviour says.
func bySpans(find func(string) ([]span, error), behaviour string) func([]piece, piece) ([]piece, error) {
	return func(words []piece, p piece) ([]piece, error) {
		spans, err := find(p.text)
		if err != nil {
			return nil, err
		}
		for _, s := range merge(spans, behaviour) {
			words = append(words, p.part(s.begin, s.end))
		}
		return words, nil
	}
}

// merge applies a behaviour to the spans of a text.
func merge(spans []span, behaviour string) []span {
	switch behaviour {
	case "Removed":
		return slices.DeleteFunc(spans, func(s span) bool { return s.match })
	case "Isolated":
		return spans
	case "MergedWithNext":
		slices.Reverse(spans)
	}
	merged, before := spans[:0], false
	for _, s := range spans {
		join := s.match && !before
		if behaviour == "Contiguous" {
			join = s.match == before
		}
		if before = s.match; join && len(merged) > 0 {
			last := &merged[len(merged)-1]
			last.begin, last.end = min(last.begin, s.begin), max(last.end, s.end)
			continue
		}
		merged = append(merged, s)
	}
	if behaviour == "MergedWithNext" {
		slices.Reverse(merged)
	}
	return merged
}

// charSpans finds single characters.
func charSpans(match func(rune) bool) func(string) ([]span, error) {
	return func(text string) (spans []span, err error) {
		begin := 0
		for at := 0; at < len(text); {
			r, n := utf8.DecodeRuneInString(text[at:])
			if match(r) {
				if begin < at {
					spans = append(spans, span{begin, at, false})
				}
				spans = append(spans, span{at, at + n, true})
				begin = at + n
			}
			at += n
		}
		if begin < len(text) {
			spans = append(spans, span{begin, len(text), false})
		}
		return spans, nil
	}
}

// patternSpans finds the matches of a pattern; inverted, it finds what lies between them.
func patternSpans(p *pattern.Pattern, invert bool) func(string) ([]span, error) {
	return func(text string) (spans []span, err error) {
		last, m := 0, p.Match(text)
		for {
			begin, end, ok, err := m.Next()
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			if last != begin {
				spans = append(spans, span{last, begin, invert})
			}
			spans = append(spans, span{begin, end, !invert})
			last = end
		}
		if last != len(text) {
			spans = append(spans, span{last, len(text), invert})
		}
		return spans, nil
	}
}

func parseSplit(o *object) func([]piece, piece) ([]piece, error) {
	var invert bool
	if _, ok := o.fields["behavior"]; !ok {
		o.fail("behavior", "it is missing")
	}
	behaviour := o.choice("behavior", "", behaviours...)
	o.required("invert", &invert)
	p := parsePattern(o)
	if p == nil {
		return nil
	}
	return bySpans(patternSpans(p, invert), behaviour)
}

// parseCharacter takes a field that is one character.
func parseCharacter(o *object, name string) rune {
	var text string
	o.required(name, &text)
	r, n := utf8.DecodeRuneInString(text)
	if n != len(text) || n == 0 {
		o.fail(name, "%.40q is not one character", text)
	}
	return r
}

// parseMetaspace reads Metaspace, which replaces spaces and splits before each replacement.
func parseMetaspace(o *object) func([]piece, piece) ([]piece, error) {
	replacement := string(parseCharacter(o, "replacement"))
	scheme := o.choice("prepend_scheme", "always", "always", "first", "never")
	split, prefix := true, true
	o.optional("split", &split)
	o.optional("add_prefix_space", &prefix)
	if !prefix && scheme != "never" {
		o.fail("add_prefix_space", "it is false, and prepend_scheme is %s", scheme)
	}
	o.ignore("str_rep")
	return func(words []piece, p piece) ([]piece, error) {
		text := strings.ReplaceAll(p.text, " ", replacement)
		if (scheme == "always" || scheme == "first" && p.first) && !strings.HasPrefix(text, replacement) {
			text = replacement + text
		}
		p.text = text
		begin := 0
		for split {
			next := strings.Index(text[min(begin+1, len(text)):], replacement)
			if next < 0 || begin+1 > len(text) {
				break
			}
			words = append(words, p.part(begin, begin+1+next))
			begin += 1 + next
		}
		return append(words, p.part(begin, len(text))), nil
	}
}
