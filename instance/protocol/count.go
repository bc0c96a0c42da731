package protocol

import (
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/instance/tensorjson"
	"github.com/faas-infer/faas-infer/instance/text"
)

// maxSized bounds how much of a body is read to count its texts. The rest counts as what was read.
const maxSized = 256 << 10

// Size is how large a request of texts is.
type Size struct {
	// Rows is the number of texts, Tokens that of their tokens together, special ones included.
	Rows, Tokens int
	// Exact reports that all tokens were counted.
	Exact bool
}

// SizeOf returns the size of a request to a path before an instance decodes it. It is false if the body has no texts, or
// is not one that [Model.Decode] accepts. A body with a Content-Encoding must not be given.
func SizeOf(c *text.Counter, path string, body []byte) (Size, bool) {
	path = strings.TrimSuffix(path, "/")
	part := body[:min(len(body), maxSized)]
	switch {
	case path == embeddingsPath || slices.Contains(rerankPaths, path):
	case path != "" || !isTextBody(part):
		return Size{}, false
	}
	size := Size{Exact: len(part) == len(body)}
	var err error
	if c.Reranks() {
		err = size.addPairs(c, part)
	} else {
		err = size.addTexts(c, part)
	}
	switch {
	case size.Exact:
		return size, err == nil && size.Rows > 0
	case size.Rows == 0: // One text that is longer than what was read.
		return Size{Rows: 1, Tokens: c.Longest()}, true
	}
	size.Tokens = size.Tokens * min(maxTexts, size.Rows*len(body)/len(part)) / size.Rows
	size.Rows = min(maxTexts, size.Rows*len(body)/len(part))
	return size, true
}

// addTexts adds the texts of a request for embeddings. A body that was cut has those before its end.
func (s *Size) addTexts(c *text.Counter, body []byte) error {
	var q embeddings
	err := q.read(tensorjson.NewReader(body))
	for _, ids := range q.tokens {
		s.Tokens += c.Length(len(ids))
	}
	return s.add(c, "", q.texts, len(q.texts)+len(q.tokens), err)
}

// addPairs adds the pairs of a request to rank documents.
func (s *Size) addPairs(c *text.Counter, body []byte) error {
	var q rerank
	err := q.read(tensorjson.NewReader(body))
	return s.add(c, q.query, q.documents, len(q.documents), err)
}

// add adds rows and the tokens of texts. err is why the body was not read to its end.
func (s *Size) add(c *text.Counter, query string, texts []string, rows int, err error) error {
	if err != nil && s.Exact {
		return err
	}
	tokens, exact, err := c.Count(query, texts)
	s.Rows, s.Tokens, s.Exact = rows, s.Tokens+tokens, s.Exact && exact
	return err
}
