package tokenizer

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/faas-infer/faas-infer/model/tokenizer/characters"
)

// addedToken is a token that is found in a text before it is split into words.
type addedToken struct {
	id                         int32
	content                    string
	singleWord, lstrip, rstrip bool
	normalized, special        bool
}

// finder finds added tokens: of those that begin leftmost, the longest.
type finder struct {
	tokens []addedToken
	trie   *trie
	// begins says which bytes a token begins with.
	begins [256]bool
	// special says whether special tokens are interpreted.
	special bool
}

// parseAdded reads the field added_tokens.
func parseAdded(o *object) []addedToken {
	var raws []json.RawMessage
	o.optional("added_tokens", &raws)
	all := make([]addedToken, len(raws))
	for i, raw := range raws {
		t := &all[i]
		part, err := open(fmt.Sprintf("%s.added_tokens[%d]", o.path, i), raw)
		if err != nil {
			o.fail("added_tokens", "%w", err)
			return nil
		}
		part.required("id", &t.id)
		part.required("content", &t.content)
		part.required("single_word", &t.singleWord)
		part.required("lstrip", &t.lstrip)
		part.required("rstrip", &t.rstrip)
		part.required("normalized", &t.normalized)
		part.required("special", &t.special)
		if t.id < 0 || t.id > maxID || t.content == "" {
			part.fail("id", "it is %d, and the token %q; ids are from 0 to %d, and a token is not empty",
				t.id, t.content, maxID)
		}
		if err := part.close(); err != nil {
			o.fail("added_tokens", "%w", err)
			return nil
		}
	}
	return all
}

// specials returns the words of special tokens.
func specials(all []addedToken) map[string]bool {
	words := map[string]bool{}
	for _, t := range all {
		if t.special {
			words[t.content] = true
		}
	}
	return words
}

// number checks the ids of added tokens. tokenizers takes a token's id from the vocabulary, or else the next
// one behind it, and only warns where the file says something else.
func (v *vocabulary) number(all []addedToken) error {
	next := int32(v.entries)
	for i, t := range all {
		id, ok := v.ids[t.content]
		if !ok {
			id = next
			next++
			v.ids[t.content] = id
		}
		if id != t.id {
			return fmt.Errorf("tokenizer.added_tokens[%d].id: the token %.100q has the id %d, and its place gives %d: "+
				"make the vocabulary complete, so that both are equal", i, t.content, t.id, id)
		}
	}
	return nil
}

// newFinder finds the tokens that are normalized, or those that are not; nil if there are none. normalize
// brings the former into the form in which texts are when they are looked for.
func newFinder(all []addedToken, normalized, special bool, normalize normalizer) (*finder, error) {
	f := &finder{trie: newTrie(), special: special}
	seen := map[string]bool{}
	for i, t := range all {
		if t.normalized != normalized || seen[t.content] {
			continue
		}
		seen[t.content] = true
		text := []byte(t.content)
		if normalized && normalize != nil {
			var err error
			if text, _, err = normalize(text); err != nil {
				return nil, err
			}
		}
		if _, ok := f.trie.find(string(text)); ok || len(text) == 0 {
			return nil, fmt.Errorf("tokenizer.added_tokens[%d].content: %.100q is nothing or another added token "+
				"once it is normalized: remove one of them", i, t.content)
		}
		if err := f.trie.add(string(text), int32(len(f.tokens))); err != nil {
			return nil, fmt.Errorf("tokenizer.added_tokens: %w", err)
		}
		f.tokens = append(f.tokens, t)
		f.begins[text[0]] = true
	}
	if len(f.tokens) == 0 {
		return nil, nil
	}
	return f, nil
}

// find calls text for each part between added tokens, and token for each added token. Both get the place at
// which the part begins.
func (f *finder) find(whole string, text func(part string, at int) error, token func(id int32)) error {
	if f == nil {
		return text(whole, 0)
	}
	begin := 0
	for at := 0; at < len(whole); {
		value, length := int32(noToken), 0
		if f.begins[whole[at]] {
			value, length = f.trie.longest(0, whole[at:])
		}
		if value == noToken {
			at++
			continue
		}
		t := &f.tokens[value]
		from, to := at, at+length
		at = to
		if !f.takes(t, whole, from, to) {
			continue
		}
		if t.lstrip {
			from = max(begin, spacesBefore(whole[:from]))
		}
		if t.rstrip {
			to += spacesBehind(whole[to:])
		}
		if begin < from {
			if err := text(whole[begin:from], begin); err != nil {
				return err
			}
		}
		token(t.id)
		begin = to
	}
	if begin < len(whole) {
		return text(whole[begin:], begin)
	}
	return nil
}

// takes reports whether a token that was found is meant: special tokens only if they are interpreted, and
// those that must be single words only as such.
func (f *finder) takes(t *addedToken, whole string, from, to int) bool {
	if t.special && !f.special {
		return false
	}
	if !t.singleWord {
		return true
	}
	before, n := utf8.DecodeLastRuneInString(whole[:from])
	behind, m := utf8.DecodeRuneInString(whole[to:])
	return !(n > 0 && characters.Of(before).Is(characters.Word)) && !(m > 0 && characters.Of(behind).Is(characters.Word))
}

// spacesBefore returns where the spaces at the end of a text begin.
func spacesBefore(text string) int {
	for len(text) > 0 {
		r, n := utf8.DecodeLastRuneInString(text)
		if !characters.Of(r).Is(characters.Space) {
			break
		}
		text = text[:len(text)-n]
	}
	return len(text)
}

// spacesBehind returns the length of the spaces with which a text begins.
func spacesBehind(text string) int {
	for at, r := range text {
		if !characters.Of(r).Is(characters.Space) {
			return at
		}
	}
	return len(text)
}
