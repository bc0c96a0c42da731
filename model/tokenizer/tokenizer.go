// Package tokenizer turns text into the token ids of a model, as the model's tokenizer.json says. The ids are
// those of Python's tokenizers (package characters has its version), with WordPiece, BPE and Unigram. What a
// file has and the package does not know is an error that names the field: ids never differ silently. The
// package reads no files, pads nothing, and does not turn ids into text.
//
// A text takes five steps, each in a file of its own: added tokens are found (added.go), the rest is normalized
// (normalizer.go) and split into words (pretokenizer.go), a model gives the words' ids (wordpiece.go, bpe.go,
// unigram.go), and a template adds special tokens (template.go).
//
// Begin reading at Tokenizer.Encode.
package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"
)

// Options say how a tokenizer reads texts.
type Options struct {
	// SpecialTokens interprets special tokens, such as [SEP], in texts, as Python's tokenizers does by default.
	// Without it they are text like any other, so that a user cannot end a sequence or begin another one, and
	// no word becomes a special token other than the unknown one.
	SpecialTokens bool
}

// Tokenizer turns texts into ids. It is safe for concurrent use.
type Tokenizer struct {
	vocabulary *vocabulary
	size       int
	// plain finds the added tokens that are not normalized, normalized the others. Both may be nil.
	plain, normalized *finder
	normalize         normalizer
	split             preTokenizer
	words             *cache
	template          template
	truncation        truncation
	rooms             sync.Pool
}

// Encoding is a text, or a pair of texts, as a model takes it.
type Encoding struct {
	// IDs are the tokens, and TypeIDs which part of the input each belongs to; both are equally long.
	IDs, TypeIDs []int32
	// Truncated says that tokens were left out.
	Truncated bool
}

// The values of max that Encode takes beside a number of tokens.
const (
	// AsFile truncates as the file says.
	AsFile = 0
	// Unlimited truncates nothing.
	Unlimited = -1
)

// New reads a tokenizer.json. The error names the field that is wrong, missing or unknown.
func New(file []byte, options Options) (*Tokenizer, error) {
	if err := validText(file); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if err := validJSON(file); err != nil {
		return nil, fmt.Errorf("tokenizer: it is not a JSON object: %w", err)
	}
	o, err := open("tokenizer", file)
	if err != nil {
		return nil, err
	}
	if version := o.choice("version", "1.0", "1.0"); version == "" {
		return nil, *o.err
	}
	t := &Tokenizer{}
	added := parseAdded(o)
	t.truncation = parseTruncation(o, o.raw("truncation"))
	special := map[string]bool{}
	if !options.SpecialTokens {
		special = specials(added)
	}
	normalizer, splitter := o.raw("normalizer"), o.raw("pre_tokenizer")
	processor, model := o.raw("post_processor"), o.raw("model")
	o.ignore("decoder", "padding")
	if err := o.close(); err != nil {
		return nil, err
	}
	if t.normalize, err = parseNormalizer("normalizer", normalizer); err != nil {
		return nil, err
	}
	if t.split, err = parsePreTokenizer("pre_tokenizer", splitter); err != nil {
		return nil, err
	}
	if t.template, err = parseTemplate("post_processor", processor); err != nil {
		return nil, err
	}
	return t, t.load(model, added, special, options)
}

// load reads the model and connects the parts.
func (t *Tokenizer) load(raw json.RawMessage, added []addedToken, special map[string]bool, options Options) error {
	if raw == nil {
		return errors.New("tokenizer.model: it is missing")
	}
	m, v, err := parseModel(raw, special)
	if err != nil {
		return err
	}
	if err := v.number(added); err != nil {
		return err
	}
	t.vocabulary, t.words = v, newCache(m, t.split.bytes)
	for _, id := range v.ids {
		t.size = max(t.size, int(id)+1)
	}
	for _, s := range slices.Concat(t.template.single, t.template.pair) {
		for _, id := range s.ids {
			if id < 0 || int(id) >= t.size {
				return fmt.Errorf("post_processor: it adds the id %d, and the vocabulary ends at %d", id, t.size-1)
			}
		}
	}
	if t.plain, err = newFinder(added, false, options.SpecialTokens, nil); err != nil {
		return err
	}
	t.normalized, err = newFinder(added, true, options.SpecialTokens, t.normalize)
	return err
}

// Size returns the number of ids: all are below it. A model needs as many embeddings.
func (t *Tokenizer) Size() int { return t.size }

// ID returns the id of a token, such as that to pad with; false if the vocabulary lacks it.
func (t *Tokenizer) ID(token string) (id int32, ok bool) {
	id, ok = t.vocabulary.ids[token]
	return id, ok
}

// Encode returns the ids of a text with the special tokens around it. max is the maximum number of ids, these
// included; AsFile and Unlimited are values of it, too. Bytes that are not UTF-8 are read as U+FFFD, each. The
// error says that max is too small, or what the vocabulary lacks.
func (t *Tokenizer) Encode(text string, max int) (Encoding, error) {
	return t.encode([]string{text}, max)
}

// EncodePair is Encode for two texts, as rerankers take them.
func (t *Tokenizer) EncodePair(a, b string, max int) (Encoding, error) {
	return t.encode([]string{a, b}, max)
}

// Query is a text that many others are paired with. Its tokens are found once. It is safe for concurrent use.
type Query struct {
	tokenizer *Tokenizer
	ids       []int32
}

// Query reads the first text of pairs.
func (t *Tokenizer) Query(text string) (*Query, error) {
	// An empty query has ids, too, if none.
	ids, err := t.sequence(&room{}, []int32{}, text, Unlimited)
	return &Query{t, ids}, err
}

// EncodePair is [Tokenizer.EncodePair] with the query as its first text.
func (q *Query) EncodePair(b string, max int) (Encoding, error) {
	return q.tokenizer.encodeAfter(q.ids, []string{b}, max)
}

func (t *Tokenizer) encode(texts []string, max int) (Encoding, error) {
	return t.encodeAfter(nil, texts, max)
}

// encodeAfter encodes a text, or two. If it is one and query is not nil, query are the ids of the text before it.
func (t *Tokenizer) encodeAfter(query []int32, texts []string, max int) (Encoding, error) {
	cut, pair := t.truncation, query != nil || len(texts) == 2
	switch {
	case max == Unlimited:
		cut.limited = false
	case max < 0:
		return Encoding{}, fmt.Errorf("the maximum is %d tokens; it must be positive", max)
	case max != AsFile:
		cut.limited, cut.max = true, max
	}
	added := t.template.added(pair)
	if cut.limited && cut.max < added {
		return Encoding{}, fmt.Errorf("the maximum is %d tokens; the %d special ones alone are more", cut.max, added)
	}
	r, _ := t.rooms.Get().(*room)
	if r == nil {
		r = &room{}
	}
	r.stopped = false
	if len(texts[0]) <= maxRoom && len(texts[len(texts)-1]) <= maxRoom {
		defer t.rooms.Put(r)
	}
	for i, text := range texts {
		// Of two texts the longer one is cut, so both are needed as a whole.
		limit := Unlimited
		if cut.limited && !pair && cut.direction == "Right" {
			limit = cut.max
		}
		ids, err := t.sequence(r, r.ids[i][:0], text, limit)
		if err != nil {
			return Encoding{}, err
		}
		r.ids[i] = ids
	}
	kept := [2][]int32{r.ids[0], nil}
	switch {
	case query != nil:
		kept = [2][]int32{query, r.ids[0]}
	case pair:
		kept[1] = r.ids[1]
	}
	truncated := r.stopped
	if cut.limited {
		cut.max -= added
		var shorter bool
		var err error
		if kept, shorter, err = cut.apply(kept, pair); err != nil {
			return Encoding{}, err
		}
		truncated = truncated || shorter
	}
	e := t.template.fill(kept, pair, added)
	e.Truncated = truncated
	return e, nil
}

// sequence appends the ids of a text, without special tokens around it.
func (t *Tokenizer) sequence(r *room, ids []int32, text string, limit int) ([]int32, error) {
	if !utf8.ValidString(text) {
		text = string([]rune(text))
	}
	if err := t.findParts(r, text); err != nil {
		return nil, err
	}
	return t.encodeParts(r, ids, limit)
}

// fill puts sequences into a template, which adds some tokens.
func (t template) fill(sequences [2][]int32, pair bool, added int) Encoding {
	n := added + len(sequences[0]) + len(sequences[1])
	e := Encoding{IDs: make([]int32, 0, n), TypeIDs: make([]int32, 0, n)}
	for _, s := range t.of(pair) {
		ids := s.ids
		if s.sequence != noToken {
			ids = sequences[s.sequence]
		}
		e.IDs = append(e.IDs, ids...)
		for range ids {
			e.TypeIDs = append(e.TypeIDs, s.typeID)
		}
	}
	return e
}

// room is the memory for a text, used again for the next one.
type room struct {
	pieces []piece
	ids    [2][]int32
	// parts are the pieces of a text before it is split into words: added tokens, and texts between them.
	parts []part
	// stopped says that words were left out because there are enough tokens.
	stopped bool
}

// maxRoom is the number of bytes of a text up to which the memory for it is kept.
const maxRoom = 1 << 16

// part is an added token, or a piece between two of them.
type part struct {
	piece
	id int32
}

// findParts finds added tokens and normalizes what is between them.
func (t *Tokenizer) findParts(r *room, text string) error {
	r.parts = r.parts[:0]
	token := func(id int32) { r.parts = append(r.parts, part{id: id}) }
	return t.plain.find(text, func(between string, at int) error {
		first := at == 0
		if t.normalize != nil {
			normal, moved, err := t.normalize([]byte(between))
			if err != nil {
				return err
			}
			between, first = string(normal), first && !moved
		}
		if between == "" {
			return nil
		}
		return t.normalized.find(between, func(rest string, at int) error {
			r.parts = append(r.parts, part{piece{rest, first && at == 0}, noToken})
			return nil
		}, token)
	}, token)
}

// encodeParts splits the parts into words and encodes these.
func (t *Tokenizer) encodeParts(r *room, ids []int32, limit int) ([]int32, error) {
	for i, p := range r.parts {
		if p.id != noToken {
			ids = append(ids, p.id)
			continue
		}
		words, err := t.split.words(r.pieces[:0], p.piece)
		if err != nil {
			return nil, err
		}
		r.pieces = words
		for j, word := range words {
			if ids, err = t.words.encode(ids, word.text); err != nil {
				return nil, err
			}
			if limit != Unlimited && len(ids) >= limit {
				r.stopped = r.stopped || j < len(words)-1 || i < len(r.parts)-1
				return ids, nil
			}
		}
	}
	return ids, nil
}

// truncation is the field truncation: whether sequences are cut, to how many tokens, where, and which.
type truncation struct {
	limited             bool
	max                 int
	direction, strategy string
}

func parseTruncation(o *object, raw json.RawMessage) truncation {
	cut := truncation{direction: "Right", strategy: "LongestFirst"}
	if raw == nil {
		return cut
	}
	part, err := open(o.path+".truncation", raw)
	if err != nil {
		o.fail("truncation", "%w", err)
		return cut
	}
	cut.limited = true
	part.required("max_length", &cut.max)
	cut.direction = part.choice("direction", "Right", "Right", "Left")
	cut.strategy = part.choice("strategy", "LongestFirst", "LongestFirst", "OnlyFirst", "OnlySecond")
	part.ignore("stride")
	if cut.max < 1 {
		part.fail("max_length", "it is %d; it must be positive", cut.max)
	}
	if err := part.close(); err != nil {
		o.fail("truncation", "%w", err)
	}
	return cut
}

// apply cuts sequences, without special tokens, to max tokens together.
func (c truncation) apply(all [2][]int32, pair bool) (kept [2][]int32, shorter bool, err error) {
	lengths := [2]int{len(all[0]), len(all[1])}
	excess := lengths[0] + lengths[1] - c.max
	if excess <= 0 {
		return all, false, nil
	}
	target := 0
	switch {
	case c.max == 0:
		lengths = [2]int{}
	case c.strategy == "LongestFirst" && pair:
		lengths = c.longestFirst(lengths)
	case c.strategy == "OnlySecond":
		target = 1
		fallthrough
	default:
		if target == 1 && !pair || lengths[target] <= excess && c.strategy != "LongestFirst" {
			return all, false, fmt.Errorf("truncation.strategy: %s cannot cut the input to %d tokens", c.strategy, c.max)
		}
		lengths[target] -= excess
	}
	for i, n := range lengths {
		if c.direction == "Left" {
			all[i] = all[i][len(all[i])-n:]
		} else {
			all[i] = all[i][:n]
		}
	}
	return all, true, nil
}

// longestFirst cuts the longer sequence to what the shorter one leaves, but not below half of all.
func (c truncation) longestFirst(lengths [2]int) [2]int {
	swap := lengths[0] > lengths[1]
	short, long := min(lengths[0], lengths[1]), c.max
	if short <= c.max {
		long = max(short, c.max-short)
	}
	if short+long > c.max {
		short = c.max / 2
		long = short + c.max%2
	}
	if swap {
		return [2]int{long, short}
	}
	return [2]int{short, long}
}
