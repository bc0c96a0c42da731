package tokenizer

import "unicode/utf8"

// wordPiece takes the longest token with which a word begins, then the longest one with which the rest
// begins, and so on (Schuster and Nakajima 2012; BERT's form of it). A word that cannot be finished is unknown.
type wordPiece struct {
	tokens *trie
	// rest is the node behind the prefix of tokens that continue a word; false if no token has it.
	rest     uint32
	hasRest  bool
	maxChars int
	unknown  unknown
}

func parseWordPiece(o *object, v *vocabulary, special map[string]bool) model {
	var prefix, unk string
	m := &wordPiece{tokens: newTrie()}
	o.required("unk_token", &unk)
	o.required("continuing_subword_prefix", &prefix)
	o.required("max_input_chars_per_word", &m.maxChars)
	v.parse(o)
	m.unknown = v.unknown(unk)
	for token, id := range v.ids {
		if special[token] {
			continue
		}
		if err := m.tokens.add(token, id); err != nil {
			o.fail("vocab", "%w", err)
		}
	}
	m.rest, m.hasRest = m.tokens.walk(0, prefix)
	return m
}

func (m *wordPiece) encode(ids []int32, word string) ([]int32, error) {
	from := len(ids)
	known := utf8.RuneCountInString(word) <= m.maxChars
	for at := 0; known && at < len(word); {
		node := uint32(0)
		if at > 0 {
			node = m.rest
		}
		id, length := int32(noToken), 0
		if at == 0 || m.hasRest {
			id, length = m.tokens.longest(node, word[at:])
		}
		ids = append(ids, id)
		known = id != noToken
		at += length
	}
	if known {
		return ids, nil
	}
	if !m.unknown.ok {
		return nil, m.unknown.err()
	}
	return append(ids[:from], m.unknown.id), nil
}
