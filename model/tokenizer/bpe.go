package tokenizer

import (
	"container/heap"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// bpe begins with a word's characters and merges, again and again, the pair of neighbours that comes first in
// the list of merges (Sennrich et al. 2016).
type bpe struct {
	// ids has the tokens that characters, and with ignoreMerges whole words, may become.
	ids            map[string]int32
	merges         map[[2]int32]ranked
	prefix, suffix string
	hasUnknown     bool
	unknown        unknown
	fuseUnknown    bool
	// fallback has the tokens of single bytes, noToken where there is none; nil without byte_fallback.
	fallback     []int32
	ignoreMerges bool
}

// ranked is what a pair becomes, and its place in the list of merges.
type ranked struct{ rank, id int32 }

func parseBPE(o *object, v *vocabulary, special map[string]bool) model {
	m := &bpe{}
	var dropout *float64
	var unk *string
	var fallback bool
	o.optional("dropout", &dropout)
	if dropout != nil && *dropout != 0 {
		o.fail("dropout", "it is %g: ids would be random; set it to null", *dropout)
	}
	o.optional("unk_token", &unk)
	o.optional("continuing_subword_prefix", &m.prefix)
	o.optional("end_of_word_suffix", &m.suffix)
	o.optional("fuse_unk", &m.fuseUnknown)
	o.optional("byte_fallback", &fallback)
	o.optional("ignore_merges", &m.ignoreMerges)
	raw := o.part("merges")
	v.parse(o)
	if unk != nil {
		m.hasUnknown, m.unknown = true, v.unknown(*unk)
	}
	if fallback {
		m.fallback = v.byteTokens()
	}
	m.ids = v.ids
	if len(special) > 0 {
		m.ids = make(map[string]int32, len(v.ids))
		for token, id := range v.ids {
			if !special[token] {
				m.ids[token] = id
			}
		}
	}
	if *o.err == nil {
		m.parseMerges(o, raw, v, special)
	}
	return m
}

// byteTokens returns the tokens <0x00> to <0xFF>.
func (v *vocabulary) byteTokens() []int32 {
	all := make([]int32, 256)
	for b := range all {
		id, ok := v.ids[fmt.Sprintf("<0x%02X>", b)]
		if all[b] = id; !ok {
			all[b] = noToken
		}
	}
	return all
}

// parseMerges reads the merges, which are pairs, or lines with a space between two tokens.
func (m *bpe) parseMerges(o *object, raw json.RawMessage, v *vocabulary, special map[string]bool) {
	var pairs [][]string
	if json.Unmarshal(raw, &pairs) != nil {
		var lines []string
		if err := json.Unmarshal(raw, &lines); err != nil {
			o.fail("merges", "they are neither pairs nor lines: %w", err)
			return
		}
		pairs = pairs[:0]
		for _, line := range lines {
			if !strings.HasPrefix(line, "#version") {
				pairs = append(pairs, strings.Split(line, " "))
			}
		}
	}
	if len(pairs) > math.MaxInt32 {
		o.fail("merges", "there are more than %d", math.MaxInt32)
	}
	m.merges = make(map[[2]int32]ranked, len(pairs))
	for i, pair := range pairs {
		if len(pair) != 2 || len(pair[1]) < len(m.prefix) {
			o.fail("merges", "number %d is %.100q, which is not two tokens", i, pair)
			return
		}
		whole := pair[0] + pair[1][len(m.prefix):]
		left, okLeft := v.ids[pair[0]]
		right, okRight := v.ids[pair[1]]
		id, ok := v.ids[whole]
		if !okLeft || !okRight || !ok {
			o.fail("merges", "number %d, %.100q, or what it becomes is not in the vocabulary", i, pair)
			return
		}
		if !special[whole] {
			m.merges[[2]int32{left, right}] = ranked{int32(i), id}
		}
	}
}

func (m *bpe) encode(ids []int32, word string) ([]int32, error) {
	if m.ignoreMerges {
		if id, ok := m.ids[word]; ok {
			return append(ids, id), nil
		}
	}
	from := len(ids)
	ids, err := m.characters(ids, word)
	if err != nil {
		return nil, err
	}
	if len(ids)-from > maxScanned {
		return append(ids[:from], m.mergeLong(ids[from:])...), nil
	}
	return append(ids[:from], m.mergeShort(ids[from:])...), nil
}

// characters appends the ids of a word's characters. A character that is unknown becomes its bytes, or the
// unknown token, or nothing if there is none. As in tokenizers, an unknown token waits for the next known
// character, and bytes do not count as one.
func (m *bpe) characters(ids []int32, word string) ([]int32, error) {
	waiting := false
	for at := 0; at < len(word); {
		_, n := utf8.DecodeRuneInString(word[at:])
		char := word[at : at+n]
		if at > 0 && m.prefix != "" {
			char = m.prefix + char
		}
		if at += n; at == len(word) && m.suffix != "" {
			char += m.suffix
		}
		id, ok := m.ids[char]
		switch {
		case ok:
			if waiting {
				ids = append(ids, m.unknown.id)
				waiting = false
			}
			ids = append(ids, id)
		case m.hasBytes(char):
			for i := range len(char) {
				ids = append(ids, m.fallback[char[i]])
			}
		case m.hasUnknown:
			if !m.unknown.ok {
				return nil, m.unknown.err()
			}
			if waiting && !m.fuseUnknown {
				ids = append(ids, m.unknown.id)
			}
			waiting = true
		}
	}
	if waiting {
		ids = append(ids, m.unknown.id)
	}
	return ids, nil
}

func (m *bpe) hasBytes(char string) bool {
	if m.fallback == nil {
		return false
	}
	for i := range len(char) {
		if m.fallback[char[i]] == noToken {
			return false
		}
	}
	return true
}

// maxScanned is the number of tokens up to which a word's pairs are scanned for the first one to merge. A heap
// is faster for longer words, and linear but for a logarithm.
const maxScanned = 48

// mergeShort merges in place: ranks[i] is the rank of the pair that begins at i.
func (m *bpe) mergeShort(ids []int32) []int32 {
	var ranks [maxScanned]ranked
	rank := func(i int) {
		ranks[i].rank = math.MaxInt32
		if i+1 < len(ids) {
			if r, ok := m.merges[[2]int32{ids[i], ids[i+1]}]; ok {
				ranks[i] = r
			}
		}
	}
	for i := range ids {
		rank(i)
	}
	for {
		best := -1
		for i := range len(ids) - 1 {
			if ranks[i].rank != math.MaxInt32 && (best < 0 || ranks[i].rank < ranks[best].rank) {
				best = i
			}
		}
		if best < 0 {
			return ids
		}
		ids[best] = ranks[best].id
		copy(ranks[best+1:], ranks[best+2:len(ids)])
		ids = slices.Delete(ids, best+1, best+2)
		rank(best)
		if best > 0 {
			rank(best - 1)
		}
	}
}

// pendingMerge is a pair that may be merged: of all, the one of the lowest rank is, then the leftmost one.
type pendingMerge struct {
	ranked
	at int32
}

type pendingMerges []pendingMerge

func (p pendingMerges) Len() int { return len(p) }
func (p pendingMerges) Less(i, j int) bool {
	return p[i].rank < p[j].rank || p[i].rank == p[j].rank && p[i].at < p[j].at
}
func (p pendingMerges) Swap(i, j int) { p[i], p[j] = p[j], p[i] }

// Push appends a pair, as package heap needs it.
func (p *pendingMerges) Push(x any) { *p = append(*p, x.(pendingMerge)) }

// Pop removes the last pair, as package heap needs it.
func (p *pendingMerges) Pop() any {
	last := (*p)[len(*p)-1]
	*p = (*p)[:len(*p)-1]
	return last
}

// mergeLong merges in place, with a heap of pairs and links to the neighbours that are left.
func (m *bpe) mergeLong(ids []int32) []int32 {
	before, behind := make([]int32, len(ids)), make([]int32, len(ids)+1)
	pending := make(pendingMerges, 0, len(ids))
	end := int32(len(ids))
	pair := func(at int32) (ranked, bool) {
		if at < 0 || behind[at] >= end {
			return ranked{}, false
		}
		r, ok := m.merges[[2]int32{ids[at], ids[behind[at]]}]
		return r, ok
	}
	for i := range end {
		before[i], behind[i] = i-1, i+1
	}
	for i := range end {
		if r, ok := pair(i); ok {
			pending = append(pending, pendingMerge{r, i})
		}
	}
	heap.Init(&pending)
	for len(pending) > 0 {
		top := heap.Pop(&pending).(pendingMerge)
		if r, ok := pair(top.at); ids[top.at] == noToken || !ok || r.id != top.id {
			continue // One of the two has been merged meanwhile.
		}
		gone := behind[top.at]
		ids[top.at], ids[gone] = top.id, noToken
		behind[top.at] = behind[gone]
		if behind[gone] < end {
			before[behind[gone]] = top.at
		}
		for _, at := range [...]int32{before[top.at], top.at} {
			if r, ok := pair(at); ok {
				heap.Push(&pending, pendingMerge{r, at})
			}
		}
	}
	return slices.DeleteFunc(ids, func(id int32) bool { return id == noToken })
}
