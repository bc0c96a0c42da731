package text

import (
	"unicode/utf8"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tokenizer"
)

// maxCounted bounds how many bytes of a request's texts are turned into tokens to count these. Texts behind them count as
// many tokens for each byte. The model takes far longer for such a request than the count.
const maxCounted = 16 << 10

// countedBytes is how many bytes of a text are read at most for each token that it may have. Few texts have fewer tokens.
const countedBytes = 8

// Counter counts the tokens that a [Reader] with the same tokenizer and settings makes of texts. It is safe for concurrent
// use.
type Counter struct {
	tokens *tokenizer.Tokenizer
	// added is the number of special tokens of a row, room that of others.
	added, room int
	reranks     bool
}

// NewCounter returns a counter for texts of at most so many tokens, special ones included.
func NewCounter(tokens *tokenizer.Tokenizer, settings bundle.Text, maxLength int) *Counter {
	c := &Counter{tokens: tokens, reranks: settings.Task == bundle.TaskRerank}
	c.added = tokens.Added(c.reranks)
	c.room = max(0, maxLength-c.added)
	return c
}

// Reranks reports whether texts are pairs of a query and a document.
func (c *Counter) Reranks() bool { return c.reranks }

// Length is the number of tokens of a row whose ids a client sends.
func (c *Counter) Length(ids int) int { return min(ids, c.added+c.room) }

// Longest is the maximum number of tokens of a row.
func (c *Counter) Longest() int { return c.added + c.room }

// Count returns how many tokens the rows of texts have together, those of the query in each, if there is one. exact
// reports that all were counted. The error is that of [Reader.Text].
func (c *Counter) Count(query string, texts []string) (tokens int, exact bool, err error) {
	s := sample{counter: c, left: maxCounted, exact: true}
	first, err := s.count(query, c.room)
	if err != nil {
		return 0, false, err
	}
	for _, text := range texts {
		n, err := s.count(text, c.room-first)
		if err != nil {
			return 0, false, err
		}
		tokens += c.added + first + n
	}
	return tokens, s.exact, nil
}

// sample counts the tokens of texts as long as bytes are left, and then estimates them by those that were counted.
type sample struct {
	counter *Counter
	left    int
	// bytes and tokens are what was counted.
	bytes, tokens int
	exact         bool
}

// count returns the number of tokens of a text, at most limit.
func (s *sample) count(text string, limit int) (int, error) {
	part := text[:min(len(text), s.left, countedBytes*(limit+1))]
	for len(part) > 0 && len(part) < len(text) && !utf8.RuneStart(text[len(part)]) { // In the middle of a character.
		part = part[:len(part)-1]
	}
	n, err := s.counter.tokens.Count(part, limit)
	if err != nil {
		return 0, err
	}
	s.left -= len(part)
	s.bytes, s.tokens = s.bytes+len(part), s.tokens+n
	if rest := len(text) - len(part); rest > 0 && n < limit {
		s.exact = false
		n += int(float64(rest) * float64(s.tokens) / float64(max(1, s.bytes)))
	}
	return min(n, limit), nil
}
