package tokenizer

import (
	"encoding/json"
	"errors"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"
)

// unigram splits a text so that the sum of its tokens' scores, logarithms of probabilities, is highest
// (Kudo 2018), by Viterbi's algorithm.
type unigram struct {
	tokens *trie
	scores []float64
	// unknown is the token for a character that no token begins with, noToken if there is none, and
	// unknownScore its score.
	unknown      int32
	unknownScore float64
	// fallback has the tokens of single bytes; nil without byte_fallback.
	fallback []int32
}

// unknownPenalty is by how much an unknown character is worse than the worst token, as in sentencepiece.
const unknownPenalty = 10

// scored is a token with its score, a list of two in the file.
type scored struct {
	token string
	score float64
}

// readScored reads a list of a token and its score.
func readScored(raw json.RawMessage) (s scored, err error) {
	var pair [2]json.RawMessage
	n := 0
	elements(raw, func(value json.RawMessage) {
		if n < len(pair) {
			pair[n] = value
		}
		n++
	})
	if n != len(pair) || !isText(pair[0]) {
		return s, errors.New("an entry is not a token and its score")
	}
	s.token = text(pair[0])
	if score, ok := readScore(string(pair[1])); ok {
		s.score = score
		return s, nil
	}
	if err := json.Unmarshal(pair[1], &s.score); err != nil || string(pair[1]) == "null" {
		return s, errors.New("an entry is not a token and its score")
	}
	return s, nil
}

// readScore reads a number as the JSON reader of tokenizers does: the digits as an integer, times a power of
// ten. That may be one bit off the nearest number, which decides between ways whose scores are equal but for
// rounding. ok is false for numbers of another size.
func readScore(text string) (score float64, ok bool) {
	if text == "" || text[0] != '-' && (text[0] < '0' || text[0] > '9') {
		return 0, false
	}
	digits, exponent, hasExponent := strings.Cut(strings.ToLower(text), "e")
	power := 0
	if hasExponent {
		var err error
		if power, err = strconv.Atoi(exponent); err != nil {
			return 0, false
		}
	}
	digits, negative := strings.CutPrefix(digits, "-")
	whole, fraction, _ := strings.Cut(digits, ".")
	var significand uint64
	for i, digit := range whole + fraction {
		high, low := bits.Mul64(significand, 10)
		low, carry := bits.Add64(low, uint64(digit-'0'), 0)
		if high+carry != 0 {
			if i < len(whole) {
				return 0, false
			}
			break // Further digits are ignored.
		}
		if significand = low; i >= len(whole) {
			power--
		}
	}
	score = float64(significand)
	switch {
	case power > maxPower || power < -maxPower:
		return 0, false
	case power >= 0:
		score *= powersOfTen[power]
	default:
		score /= powersOfTen[-power]
	}
	if negative {
		score = -score
	}
	return score, true
}

// maxPower is the highest power of ten in powersOfTen.
const maxPower = 40

var powersOfTen = func() (all [maxPower + 1]float64) {
	for i := range all {
		all[i], _ = strconv.ParseFloat("1e"+strconv.Itoa(i), 64)
	}
	return all
}()

func parseUnigram(o *object, v *vocabulary, special map[string]bool) model {
	m := &unigram{tokens: newTrie(), unknown: noToken}
	var unknown *int64
	var fallback bool
	raw := o.part("vocab")
	entries := make([]scored, 0, len(raw)/bytesOfEntry)
	is := elements(raw, func(value json.RawMessage) {
		entry, err := readScored(value)
		if err != nil {
			o.fail("vocab", "%w", err)
		}
		entries = append(entries, entry)
	})
	if !is {
		o.fail("vocab", "it is not a list")
	}
	o.optional("unk_id", &unknown)
	o.optional("byte_fallback", &fallback)
	if unknown != nil {
		if *unknown < 0 || *unknown >= int64(len(entries)) {
			o.fail("unk_id", "it is %d, and the vocabulary has %d tokens", *unknown, len(entries))
			return nil
		}
		m.unknown = int32(*unknown)
	}
	if len(entries) > maxID {
		o.fail("vocab", "it has more than %d tokens", maxID)
		return nil
	}
	lowest := math.Inf(1)
	m.scores = make([]float64, len(entries))
	v.ids = make(map[string]int32, len(entries))
	for i, e := range entries {
		v.ids[e.token], m.scores[i] = int32(i), e.score
		lowest = min(lowest, e.score)
	}
	v.entries, m.unknownScore = len(entries), lowest-unknownPenalty
	for token, id := range v.ids {
		if special[token] || token == "" {
			continue
		}
		if err := m.tokens.add(token, id); err != nil {
			o.fail("vocab", "%w", err)
		}
	}
	if fallback {
		m.fallback = v.byteTokens()
	}
	return m
}

// best is the best way to a place: its score, the last token on it, and where that begins, -1 if there is no
// way.
type best struct {
	score     float64
	id, begin int32
}

// errNoUnknown says that a text has a character that only an unknown token could stand for.
var errNoUnknown = errors.New("model.unk_id: the text has a character that the vocabulary lacks, and there is no " +
	"unknown token: set it")

func (m *unigram) encode(ids []int32, word string) ([]int32, error) {
	if len(word) >= math.MaxInt32 {
		return nil, errors.New("the text is longer than 2 GiB")
	}
	var few [64]best
	ways := few[:]
	if len(word) >= len(few) {
		ways = make([]best, len(word)+1)
	}
	ways = ways[:len(word)+1]
	for i := range ways {
		ways[i].begin = -1
	}
	for at := 0; at < len(word); {
		_, n := utf8.DecodeRuneInString(word[at:])
		single := m.extend(ways, word, at, n)
		if !single {
			if m.unknown == noToken {
				// As in tokenizers, the unknown token is only missed where it would win.
				if ways[at+n].begin < 0 || m.unknownScore+ways[at].score > ways[at+n].score {
					return nil, errNoUnknown
				}
			} else {
				ways[at+n].offer(m.unknownScore+ways[at].score, m.unknown, at)
			}
		}
		at += n
	}
	return m.trace(ids, ways, word), nil
}

// offer takes a way if it is better than the one so far.
func (b *best) offer(score float64, id int32, begin int) {
	if b.begin < 0 || score > b.score {
		*b = best{score, id, int32(begin)}
	}
}

// extend offers all tokens with which the rest of a word begins. single says that one of them is just the
// first character.
func (m *unigram) extend(ways []best, word string, at, width int) (single bool) {
	node, here := uint32(0), ways[at].score
	for i := at; i < len(word); i++ {
		next, ok := m.tokens.child(node, word[i])
		if !ok {
			break
		}
		node = next
		if id := m.tokens.values[node]; id != noToken {
			ways[i+1].offer(m.scores[id]+here, id, at)
			single = single || i+1-at == width
		}
	}
	return single
}

// trace follows the best way back. Unknown characters in a row are one unknown token, or their bytes.
func (m *unigram) trace(ids []int32, ways []best, word string) []int32 {
	from := len(ids)
	for end := len(word); end > 0; {
		w := ways[end]
		begin := int(w.begin)
		if w.id != m.unknown {
			ids = append(ids, w.id)
			end = begin
			continue
		}
		for begin > 0 && ways[begin].id == m.unknown {
			begin = int(ways[begin].begin)
		}
		ids = m.unknownRow(ids, word[begin:end])
		end = begin
	}
	for i, j := from, len(ids)-1; i < j; i, j = i+1, j-1 {
		ids[i], ids[j] = ids[j], ids[i]
	}
	return ids
}

// unknownRow appends the ids of unknown characters, backwards.
func (m *unigram) unknownRow(ids []int32, row string) []int32 {
	if id, ok := m.tokens.find(row); ok {
		return append(ids, id)
	}
	if m.fallback == nil {
		return append(ids, m.unknown)
	}
	from := len(ids)
	for i := len(row) - 1; i >= 0; i-- {
		id := m.fallback[row[i]]
		if id == noToken {
			return append(ids[:from], m.unknown)
		}
		ids = append(ids, id)
	}
	return ids
}
