package protocol

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/tensorjson"
)

// rerank is a request to rank documents by a query, in the form that Cohere and Jina share.
type rerank struct {
	model, query string
	documents    []string
	asked, given bool
	// top is the number of documents that the client asks for, 0 for all.
	top int64
	// withTexts says that the answer repeats the documents.
	withTexts bool
}

// decodeRerank decodes a request to rank documents.
func decodeRerank(m *Model, r frame.Request) (*Call, error) {
	var q rerank
	if err := q.read(tensorjson.NewReader(r.Body)); err != nil {
		return nil, err
	}
	name, err := modelNamed(m, r, q.model)
	switch {
	case err != nil:
		return nil, err
	case !q.asked:
		return nil, wrong("query", `"query" is missing; give a text`)
	case q.query == "":
		return nil, wrong("query", "query cannot be an empty string")
	case len(q.documents) == 0:
		return nil, wrong("documents", `"documents" is missing or empty; give a list of texts`)
	}
	rows, at, err := m.Text.Pairs(q.query, q.documents)
	if err != nil {
		return nil, wrong("documents", "query and document %d: %w", at, err)
	}
	call := &Call{Rows: len(rows), Texts: rows}
	q.query = ""
	if q.withTexts { // The call lives longer than the body, of which documents are parts.
		for i, document := range q.documents {
			q.documents[i] = strings.Clone(document)
			call.Kept += len(document)
		}
	} else {
		q.documents = nil
	}
	call.encodeTexts = func(logits [][]float32) (frame.Response, error) {
		return q.encode(name, logits, tokensOf(rows))
	}
	return call, nil
}

// read reads the body.
func (q *rerank) read(r *tensorjson.Reader) error {
	err := r.Object(func(key string) (err error) {
		switch key {
		case "model":
			return r.Into(key, &q.model)
		case "top_n":
			var top *int64
			if err := r.Into(key, &top); err != nil || top == nil {
				return err
			}
			if q.top = *top; q.top < 1 {
				return wrong(key, "top_n is %d; it must be at least 1", q.top)
			}
			return nil
		case "return_documents":
			return r.Into(key, &q.withTexts)
		case "query":
			q.asked = true
			q.query, err = readDocument(r, key)
			return err
		case "documents":
			if q.given {
				return wrong(key, `"documents" is given twice`)
			}
			q.given = true
			return q.readDocuments(r)
		}
		return r.Skip()
	})
	if err != nil {
		return err
	}
	return r.End()
}

func (q *rerank) readDocuments(r *tensorjson.Reader) error {
	const field = "documents"
	if r.Peek() != '[' {
		return unlike(r, wrong(field, `"documents" must be a list of texts`))
	}
	return r.Array(func() error {
		if err := countTexts(field, len(q.documents)+1); err != nil {
			return err
		}
		document, err := readDocument(r, field)
		q.documents = append(q.documents, document)
		return err
	})
}

// readDocument reads a text, or an object with the key text.
func readDocument(r *tensorjson.Reader, field string) (document string, err error) {
	switch r.Peek() {
	case '"':
		return r.Text()
	case '{':
		found := false
		err = r.Object(func(key string) (err error) {
			if key != "text" || r.Peek() != '"' {
				return r.Skip()
			}
			found = true
			document, err = r.Text()
			return err
		})
		if err == nil && !found {
			err = wrong(field, `%q has an object without the key "text"`, field)
		}
		return document, err
	}
	return "", unlike(r, wrong(field, `%q has a value that is neither a text nor {"text": "…"}`, field))
}

// encode writes the answer: the documents by falling score. Cohere's clients read results and meta, Jina's results,
// model and usage.
func (q *rerank) encode(name string, logits [][]float32, tokens int) (frame.Response, error) {
	order := make([]int, len(logits))
	scores := make([]float64, len(logits))
	for i, logit := range logits {
		order[i] = i
		scores[i] = sigmoid(float64(logit[0]))
		if math.IsNaN(scores[i]) {
			return frame.Response{}, &refusal{http.StatusInternalServerError,
				fmt.Errorf("the model's score of document %d is no number", i)}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	if q.top > 0 && q.top < int64(len(order)) {
		order = order[:q.top]
	}
	body := append([]byte(nil), `{"object":"list","model":`...)
	body = appendString(body, name)
	body = append(body, `,"results":[`...)
	for i, at := range order {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, `{"index":`...)
		body = strconv.AppendInt(body, int64(at), 10)
		body = append(body, `,"relevance_score":`...)
		body = strconv.AppendFloat(body, scores[at], 'g', -1, 64)
		if q.withTexts {
			body = append(body, `,"document":{"text":`...)
			body = appendString(body, q.documents[at])
			body = append(body, '}')
		}
		body = append(body, '}')
	}
	body = fmt.Appendf(body, `],"meta":{"api_version":{"version":"2"},"tokens":{"input_tokens":%d}},`+
		`"usage":{"prompt_tokens":%d,"total_tokens":%d}}`, tokens, tokens, tokens)
	return answer(http.StatusOK, body), nil
}

// sigmoid is the score of a logit, as sentence-transformers, Cohere and Jina give it.
func sigmoid(logit float64) float64 { return 1 / (1 + math.Exp(-logit)) }
