package protocol

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/tensorjson"
	"github.com/faas-infer/faas-infer/instance/text"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// embeddings is a request for embeddings, in OpenAI's form.
type embeddings struct {
	model string
	texts []string
	// tokens are texts as token ids; a request has either.
	tokens     [][]int64
	given      bool
	base64     bool
	dimensions *int64
}

// maxTokens is the maximum number of token ids of a text, as many as the longest text of any bundle.
const maxTokens = bundle.MaxTextLength

// decodeEmbeddings decodes OpenAI's request for embeddings.
func decodeEmbeddings(m *Model, r frame.Request) (*Call, error) {
	var q embeddings
	if err := q.read(tensorjson.NewReader(r.Body)); err != nil {
		return nil, err
	}
	name, err := modelNamed(m, r, q.model)
	if err != nil {
		return nil, err
	}
	if !q.given {
		return nil, wrong("input", `"input" is missing; give a text, or a list of texts`)
	}
	if err := q.checkDimensions(m.Text.Size()); err != nil {
		return nil, err
	}
	rows, err := q.rows(m.Text)
	if err != nil {
		return nil, err
	}
	q.texts, q.tokens = nil, nil // The call lives longer than the body, of which texts are parts.
	call := &Call{Rows: len(rows), Texts: rows}
	call.encodeTexts = func(vectors [][]float32) (frame.Response, error) {
		if err := q.shorten(m.Text, vectors); err != nil {
			return frame.Response{}, err
		}
		return encodeEmbeddings(name, vectors, q.base64, tokensOf(rows))
	}
	return call, nil
}

// read reads the body.
func (q *embeddings) read(r *tensorjson.Reader) error {
	err := r.Object(func(key string) error {
		switch key {
		case "model":
			return r.Into("model", &q.model)
		case "dimensions":
			return q.readDimensions(r)
		case "encoding_format":
			var format string
			if err := r.Into("encoding_format", &format); err != nil {
				return err
			}
			if format != "" && format != "float" && format != "base64" {
				return wrong(key, "encoding_format is %.40q; it must be float or base64", format)
			}
			q.base64 = format == "base64"
			return nil
		case "input":
			if q.given {
				return wrong(key, `"input" is given twice`)
			}
			q.given = true
			return q.readInput(r)
		}
		return r.Skip()
	})
	if err != nil {
		return err
	}
	return r.End()
}

func (q *embeddings) readDimensions(r *tensorjson.Reader) error {
	if err := r.Into("dimensions", &q.dimensions); err != nil {
		return err
	}
	if q.dimensions != nil && *q.dimensions < 1 {
		return wrong("dimensions", "dimensions is %d; it must be at least 1", *q.dimensions)
	}
	return nil
}

// readInput reads a text, a list of texts, the token ids of a text, or a list of these.
func (q *embeddings) readInput(r *tensorjson.Reader) error {
	const field = "input"
	if r.Peek() == '"' {
		return q.readText(r)
	}
	if r.Peek() != '[' {
		return unlike(r, wrong(field, `"input" must be a text, a list of texts, or token ids`))
	}
	ahead := *r
	ahead.Take('[')
	if c := ahead.Peek(); c == '-' || c-'0' <= 9 {
		return q.readTokens(r)
	}
	err := r.Array(func() error {
		if err := countTexts(field, len(q.texts)+len(q.tokens)+1); err != nil {
			return err
		}
		switch c := r.Peek(); {
		case c == '"' && q.tokens == nil:
			return q.readText(r)
		case c == '[' && q.texts == nil:
			return q.readTokens(r)
		}
		return unlike(r, wrong(field, "element %d of \"input\" is neither a text nor a list of token ids as the others are",
			len(q.texts)+len(q.tokens)))
	})
	if err == nil && len(q.texts)+len(q.tokens) == 0 {
		err = wrong(field, `"input" is empty; give at least one text`)
	}
	return err
}

// unlike refuses a value of another type than a field has, for which it returns why, or one that is no JSON.
func unlike(r *tensorjson.Reader, why error) error {
	if err := r.Skip(); err != nil {
		return err
	}
	return why
}

func (q *embeddings) readText(r *tensorjson.Reader) error {
	text, err := r.Text()
	if err != nil {
		return err
	}
	if text == "" {
		return wrong("input", "input cannot be an empty string; it is element %d", len(q.texts))
	}
	q.texts = append(q.texts, text)
	return nil
}

func (q *embeddings) readTokens(r *tensorjson.Reader) error {
	var ids []int64
	err := r.Array(func() error {
		if c := r.Peek(); c != '-' && c-'0' > 9 {
			return unlike(r, wrong("input", "token ids are integers; element %d of a list is not", len(ids)))
		}
		if len(ids) == maxTokens {
			return wrong("input", "element %d has more than %d token ids, the maximum; send fewer", len(q.tokens), maxTokens)
		}
		id, err := r.Integer("a token id")
		ids = append(ids, id)
		return err
	})
	if err == nil && len(ids) == 0 {
		err = wrong("input", "input cannot be an empty list of token ids; it is element %d", len(q.tokens))
	}
	q.tokens = append(q.tokens, ids)
	return err
}

// rows are the texts as a model takes them.
func (q *embeddings) rows(reader *text.Reader) ([]text.Row, error) {
	if q.tokens == nil {
		rows, at, err := reader.Texts(q.texts)
		if err != nil {
			return nil, wrong("input", "text %d: %w", at, err)
		}
		return rows, nil
	}
	rows := make([]text.Row, len(q.tokens))
	for i, ids := range q.tokens {
		var err error
		if rows[i], err = reader.Tokens(ids); err != nil {
			return nil, wrong("input", "text %d: %w", i, err)
		}
	}
	return rows, nil
}

// checkDimensions refuses more dimensions than vectors have; size is 0 if that is not known yet.
func (q *embeddings) checkDimensions(size int) error {
	if q.dimensions != nil && size > 0 && *q.dimensions > int64(size) {
		return wrong("dimensions", "dimensions is %d; the model's embeddings have %d", *q.dimensions, size)
	}
	return nil
}

// shorten cuts the vectors to the dimensions that the client asks for.
func (q *embeddings) shorten(reader *text.Reader, vectors [][]float32) error {
	if q.dimensions == nil {
		return nil
	}
	for i, v := range vectors {
		if err := q.checkDimensions(len(v)); err != nil {
			return err
		}
		vectors[i] = v[:*q.dimensions]
		if reader.Normalizes() {
			text.Normalize(vectors[i])
		}
	}
	return nil
}

// encodeEmbeddings writes OpenAI's answer.
func encodeEmbeddings(name string, vectors [][]float32, inBase64 bool, tokens int) (frame.Response, error) {
	const perFloat = 14
	body := make([]byte, 0, 256+len(vectors)*(64+perFloat*len(vectors[0])))
	body = append(body, `{"object":"list","data":[`...)
	var raw []byte
	for i, vector := range vectors {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, `{"object":"embedding","index":`...)
		body = strconv.AppendInt(body, int64(i), 10)
		body = append(body, `,"embedding":`...)
		for _, v := range vector {
			if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
				return frame.Response{}, &refusal{http.StatusInternalServerError,
					fmt.Errorf("the model's embedding of text %d has an element that is no finite number", i)}
			}
		}
		if inBase64 {
			raw = raw[:0]
			for _, v := range vector {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
			}
			body = append(body, '"')
			body = base64.StdEncoding.AppendEncode(body, raw)
			body = append(body, `"}`...)
			continue
		}
		for j, v := range vector {
			if j == 0 {
				body = append(body, '[')
			} else {
				body = append(body, ',')
			}
			body = strconv.AppendFloat(body, float64(v), 'g', -1, 32)
		}
		body = append(body, "]}"...)
	}
	body = append(body, `],"model":`...)
	body = appendString(body, name)
	body = fmt.Appendf(body, `,"usage":{"prompt_tokens":%d,"total_tokens":%d}}`, tokens, tokens)
	return answer(http.StatusOK, body), nil
}
