package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/tensorjson"
	"github.com/faas-infer/faas-infer/instance/text"
)

// The paths of texts, and of OpenAI's list of models.
const (
	embeddingsPath = "/v1/embeddings"
	modelsPath     = "/v1/models"
)

// rerankPaths are the paths of Cohere's two versions and of Jina, and the one that servers of rerankers have.
var rerankPaths = []string{"/v1/rerank", "/v2/rerank", "/rerank"}

// maxTexts is the maximum number of texts in a request, which is OpenAI's. They run in parts.
const maxTexts = 2048

// isTextPath reports whether a path's answers, errors too, have OpenAI's form.
func isTextPath(path string) bool {
	path = strings.TrimSuffix(path, "/")
	return path == embeddingsPath || path == modelsPath || slices.Contains(rerankPaths, path)
}

// fault is an error with what OpenAI's form says of it in addition.
type fault struct {
	refusal
	param, code string
}

// Unwrap lets [statusOf] find the status.
func (f *fault) Unwrap() error { return &f.refusal }

// wrong is the error that a field of a body is wrong. format has the verbs of fmt.
func wrong(param, format string, arguments ...any) error {
	return &fault{refusal{http.StatusBadRequest, fmt.Errorf(format, arguments...)}, param, ""}
}

// missing is the error that no model does here what a request asks. format has the verbs of fmt.
func missing(code, format string, arguments ...any) error {
	return &fault{refusal{http.StatusNotFound, fmt.Errorf(format, arguments...)}, "model", code}
}

// FailureAt is [Failure] in the form of a path's protocol: OpenAI's for texts.
func FailureAt(path string, status int, err error) frame.Response {
	return failureAt(path, status, err)
}

// Failure is the response to this call if it fails, in the form of its protocol.
func (c *Call) Failure(status int, err error) frame.Response {
	return failureAt(c.request.Path, status, err)
}

func failureAt(path string, status int, err error) frame.Response {
	if !isTextPath(path) {
		return Failure(status, err)
	}
	type said struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	e := said{Message: err.Error(), Type: "invalid_request_error"}
	if status >= http.StatusInternalServerError {
		e.Type = "server_error"
	}
	if f := new(fault); errors.As(err, &f) {
		if f.param != "" {
			e.Param = &f.param
		}
		if f.code != "" {
			e.Code = &f.code
		}
	}
	body, marshalErr := json.Marshal(struct {
		Error said `json:"error"`
	}{e})
	if marshalErr != nil { // Strings always have a JSON form.
		panic(marshalErr)
	}
	return answer(status, append(body, '\n'))
}

// decodeTextRoute answers the routes of texts.
func decodeTextRoute(m *Model, r frame.Request) (*Call, frame.Response) {
	if strings.TrimSuffix(r.Path, "/") != modelsPath {
		return m.decodePost(r, func(r frame.Request) (*Call, error) { return decodeTexts(m, r) })
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		response := failureAt(r.Path, http.StatusMethodNotAllowed, fmt.Errorf("%s takes GET, not %s", r.Path, r.Method))
		response.Header.Set("Allow", http.MethodGet)
		return nil, response
	}
	return nil, answerJSON(struct {
		Object string        `json:"object"`
		Data   []listedModel `json:"data"`
	}{"list", []listedModel{listed(m, r)}})
}

// listedModel is a model as OpenAI's API shows it.
type listedModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// listed returns the model as a request calls it.
func listed(m *Model, r frame.Request) listedModel {
	return listedModel{m.calledBy(r), "model", m.Created, "faas-infer"}
}

// decodeTexts decodes a request of texts. The model's task decides how its body is read.
func decodeTexts(m *Model, r frame.Request) (*Call, error) {
	path := strings.TrimSuffix(r.Path, "/")
	switch reranks := slices.Contains(rerankPaths, path); {
	case m.Text == nil:
		return nil, missing("model_not_found", "model %q takes no texts; send tensors to /v2/models/%[1]s/infer",
			m.calledBy(r))
	case path == embeddingsPath && m.Text.Reranks():
		return nil, missing("", "model %q gives scores, not embeddings; send a query and documents to %s",
			m.calledBy(r), rerankPaths[0])
	case reranks && !m.Text.Reranks():
		return nil, missing("", "model %q gives embeddings, not scores; send texts to %s",
			m.calledBy(r), embeddingsPath)
	case m.Text.Reranks():
		return decodeRerank(m, r)
	}
	return decodeEmbeddings(m, r)
}

// isTextBody reports whether a body to the function itself is one of texts, not of tensors.
func isTextBody(body []byte) (found bool) {
	r := tensorjson.NewReader(body)
	// Errors do not matter here: the body is read again in full.
	_ = r.Object(func(key string) error {
		switch key {
		case "input", "query", "documents":
			found = true
			return errDecided
		case "inputs", "instances":
			return errDecided
		}
		return r.Skip()
	})
	return found
}

// modelNamed checks the field model of a body, which may be missing, and returns the name for the answer. The name may
// have a namespace, which an instance does not know: the provider has found the function by it.
func modelNamed(m *Model, r frame.Request, name string) (string, error) {
	if name == "" {
		return m.calledBy(r), nil
	}
	short, _, _ := strings.Cut(name, ".")
	if called := m.calledBy(r); !m.known(short) && short != called && name != called {
		return "", missing("model_not_found", "there is no model %.100q here; this is %q", name, called)
	}
	return name, nil
}

// countTexts refuses the text number n, from 1, if that is too many. field holds them.
func countTexts(field string, n int) error {
	if n > maxTexts {
		return wrong(field, "%q has more than %d elements, the maximum; send several requests", field, maxTexts)
	}
	return nil
}

// RespondTexts encodes the response from the answers to the call's own texts.
func (c *Call) RespondTexts(answers [][]float32) frame.Response {
	response, err := c.encodeTexts(answers)
	if err != nil {
		return c.Failure(statusOf(err), err)
	}
	return pack(response, c.request)
}

// tokensOf is the number of tokens of rows.
func tokensOf(rows []text.Row) (n int) {
	for _, row := range rows {
		n += len(row.IDs)
	}
	return n
}
