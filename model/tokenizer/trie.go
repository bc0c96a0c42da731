package tokenizer

import (
	"errors"
	"math/bits"
)

// maxNodes is the maximum number of nodes of a trie: an edge's key has 24 bits for its node.
const maxNodes = 1 << 24

// errNodes says that a vocabulary does not fit a trie.
var errNodes = errors.New("its tokens have more than 16,777,216 different beginnings")

// trie finds the tokens with which a text begins. It is one hash table of edges, with open addressing.
type trie struct {
	// keys holds, for each edge, its node and its byte, plus one; 0 is a free slot. next has the node that
	// the edge leads to.
	keys, next []uint32
	shift      int
	// values holds each node's token, or noToken.
	values []int32
}

// noToken is the value of a node at which no token ends.
const noToken = -1

func newTrie() *trie {
	t := &trie{values: []int32{noToken}}
	t.resize(1 << 8)
	return t
}

func (t *trie) resize(slots int) {
	keys, next := t.keys, t.next
	t.keys, t.next, t.shift = make([]uint32, slots), make([]uint32, slots), 32-bits.TrailingZeros(uint(slots))
	for i, key := range keys {
		if key != 0 {
			s := t.slot(key)
			t.keys[s], t.next[s] = key, next[i]
		}
	}
}

// slot returns where a key is, or where it would be.
func (t *trie) slot(key uint32) uint32 {
	mask := uint32(len(t.keys) - 1)
	s := (key * 0x9E3779B1) >> t.shift
	for t.keys[s] != key && t.keys[s] != 0 {
		s = (s + 1) & mask
	}
	return s
}

// child returns the node behind a byte; false if there is none.
func (t *trie) child(node uint32, b byte) (uint32, bool) {
	s := t.slot(node<<8 | uint32(b) + 1)
	return t.next[s], t.keys[s] != 0
}

// add sets the value of a token.
func (t *trie) add(token string, value int32) error {
	node := uint32(0)
	for i := range len(token) {
		next, ok := t.child(node, token[i])
		if !ok {
			if len(t.values) >= maxNodes-1 {
				return errNodes
			}
			next = uint32(len(t.values))
			t.values = append(t.values, noToken)
			if len(t.values)*2 > len(t.keys) {
				t.resize(2 * len(t.keys))
			}
			s := t.slot(node<<8 | uint32(token[i]) + 1)
			t.keys[s], t.next[s] = node<<8|uint32(token[i])+1, next
		}
		node = next
	}
	t.values[node] = value
	return nil
}

// walk returns the node that a text leads to from another one.
func (t *trie) walk(node uint32, text string) (uint32, bool) {
	for i := range len(text) {
		next, ok := t.child(node, text[i])
		if !ok {
			return 0, false
		}
		node = next
	}
	return node, true
}

// find returns the value of a token; false if it has none.
func (t *trie) find(token string) (int32, bool) {
	node, ok := t.walk(0, token)
	if !ok || t.values[node] == noToken {
		return noToken, false
	}
	return t.values[node], true
}

// longest returns the longest token with which a text begins below a node, and its length in bytes; noToken
// if there is none.
func (t *trie) longest(node uint32, text string) (value int32, length int) {
	value = noToken
	for i := range len(text) {
		next, ok := t.child(node, text[i])
		if !ok {
			break
		}
		node = next
		if v := t.values[node]; v != noToken {
			value, length = v, i+1
		}
	}
	return value, length
}
