package tokenizer

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
)

// model turns a word into ids.
type model interface {
	// encode appends the ids of a word. The error says that the word needs an unknown token that the
	// vocabulary lacks.
	encode(ids []int32, word string) ([]int32, error)
}

// vocabulary is what all models share.
type vocabulary struct {
	ids map[string]int32
	// entries is how many ids tokenizers counts: added tokens that the vocabulary lacks get the next ones.
	entries int
}

// bytesOfEntry is about how many bytes of a file an entry of its vocabulary takes.
const bytesOfEntry = 24

// maxID is the highest id.
const maxID = math.MaxInt32 - 1

// parseModel reads the field model. The words of special never come from the model unless they may be
// interpreted: special is empty then.
func parseModel(raw json.RawMessage, special map[string]bool) (model, *vocabulary, error) {
	o, kind, err := component("model", raw)
	if err != nil {
		return nil, nil, err
	}
	var m model
	v := &vocabulary{ids: map[string]int32{}}
	switch kind {
	case "WordPiece":
		m = parseWordPiece(o, v, special)
	case "BPE":
		m = parseBPE(o, v, special)
	case "Unigram":
		m = parseUnigram(o, v, special)
	default:
		o.fail("type", "the model %.100q is not supported; the values are WordPiece, BPE and Unigram", kind)
	}
	if err := o.close(); err != nil {
		return nil, nil, err
	}
	return m, v, nil
}

// parse takes the field vocab of WordPiece and BPE.
func (v *vocabulary) parse(o *object) {
	raw := o.part("vocab")
	v.ids = make(map[string]int32, len(raw)/bytesOfEntry)
	is := members(raw, func(token string, value json.RawMessage) {
		id, err := strconv.ParseInt(string(value), 10, 64)
		switch {
		case string(value) == "null":
			o.fail("vocab", "the token %.100q has no id", token)
		case err != nil || id < 0 || id > maxID:
			o.fail("vocab", "the token %.100q has the id %.100s; ids are whole numbers from 0 to %d", token, value, maxID)
		default:
			v.ids[token] = int32(id)
		}
	})
	if !is {
		o.fail("vocab", "it is not a JSON object")
	}
	v.entries = len(v.ids)
}

// unknown is the token for what a model does not know.
type unknown struct {
	token string
	id    int32
	ok    bool
}

func (v *vocabulary) unknown(token string) unknown {
	id, ok := v.ids[token]
	return unknown{token, id, ok}
}

func (u unknown) err() error {
	return fmt.Errorf("model.unk_token: the text has a word that is not in the vocabulary, and neither is the "+
		"unknown token %.100q: add it to the vocabulary", u.token)
}

// The bounds of the cache of words.
const (
	maxCached     = 1 << 14
	maxCachedWord = 256
)

// cache remembers the ids of words. A word has one slot, which the latest word of that slot takes, so that
// the cache is bounded and needs no lock.
type cache struct {
	model model
	// bytes says that the characters of a word have yet to be replaced by those for its bytes.
	bytes bool
	seed  maphash.Seed
	slots []atomic.Pointer[cachedWord]
}

type cachedWord struct {
	word string
	ids  []int32
}

func newCache(m model, bytes bool) *cache {
	return &cache{model: m, bytes: bytes, seed: maphash.MakeSeed(), slots: make([]atomic.Pointer[cachedWord], maxCached)}
}

func (c *cache) encode(ids []int32, word string) ([]int32, error) {
	if len(word) > maxCachedWord {
		return c.compute(ids, word)
	}
	slot := &c.slots[maphash.String(c.seed, word)%maxCached]
	if cached := slot.Load(); cached != nil && cached.word == word {
		return append(ids, cached.ids...), nil
	}
	from := len(ids)
	ids, err := c.compute(ids, word)
	if err != nil {
		return nil, err
	}
	slot.Store(&cachedWord{strings.Clone(word), append([]int32(nil), ids[from:]...)})
	return ids, nil
}

func (c *cache) compute(ids []int32, word string) ([]int32, error) {
	if c.bytes {
		word = string(appendByteLevel(make([]byte, 0, 2*len(word)), word))
	}
	return c.model.encode(ids, word)
}
