package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Server is the client of one model at a model server.
type Server interface {
	// Ready returns nil if the model can take requests.
	Ready(ctx context.Context) error
	// Signature returns the model's inputs and outputs. It fails if one of them has no
	// batch dimension, or a type that no engine here supports.
	Signature(ctx context.Context) (inputs, outputs []tensor.Info, err error)
	// Infer runs rows rows on the server. It returns the given outputs and checks them
	// against their description. The error wraps [ErrNoAnswer] if the server did not
	// answer. It is an [Error] if the server refused.
	Infer(ctx context.Context, rows int, inputs []tensor.Tensor, outputs []tensor.Info) ([]tensor.Tensor, error)
	// Close closes idle connections.
	Close()
}

// ErrNoAnswer says that a server was unreachable, broke the connection or took too long.
var ErrNoAnswer = errors.New("the model server did not answer")

// Error is a server's error response.
type Error struct {
	// Status is the HTTP status code, Text the message.
	Status int
	Text   string
}

// Error implements error.
func (e *Error) Error() string { return e.Text }

// HTTPStatus is the status of a request that the server refused alone: 400 if the server blames the
// request's inputs by that, otherwise 500.
func (e *Error) HTTPStatus() int {
	if e.Status == http.StatusBadRequest {
		return e.Status
	}
	return http.StatusInternalServerError
}

const (
	// maxAnswer is the maximum length of an answer in bytes.
	maxAnswer = 1 << 30
	// maxErrorText is the maximum length in bytes of a server's message in an [Error].
	maxErrorText = 2000
	// idle is how long a connection is kept for the next batch.
	idle = 5 * time.Minute
)

// caller sends requests for one model to a server.
type caller struct {
	base, model string
	client      *http.Client
}

// NewTransport makes the connections to one server at an address of a network with dial.
// Requests go there whatever host their URL names. It keeps up to the given number of idle
// connections.
func NewTransport(dial mutual.Dial, network, address string, connections int) *http.Transport {
	t := newTransport(connections)
	t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dial(ctx, network, address)
	}
	return t
}

func newTransport(connections int) *http.Transport {
	return &http.Transport{
		Proxy: nil, DisableCompression: true, MaxIdleConnsPerHost: connections, IdleConnTimeout: idle,
		WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10,
	}
}

func newCaller(base, model string, over *http.Transport) caller {
	return caller{base: strings.TrimRight(base, "/"), model: model, client: &http.Client{
		Transport: over,
		// A model server does not redirect.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close implements Server.
func (c *caller) Close() { c.client.CloseIdleConnections() }

// ask sends a request. A status other than 200 becomes an [Error].
func (c *caller) ask(ctx context.Context, method, path string, header http.Header, body []byte) (http.Header, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	// This header lets the transport repeat a request if the server has just closed the
	// idle connection, or has broken off on it. An empty value is not sent.
	if !frame.Once(ctx) {
		r.Header["Idempotency-Key"] = []string{}
	}
	response, err := c.client.Do(r)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	defer response.Body.Close()
	answer, err := read(response)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("%w in full: %w", ErrNoAnswer, err)
	case response.StatusCode != http.StatusOK:
		return nil, nil, &Error{Status: response.StatusCode, Text: errorText(response.StatusCode, answer)}
	}
	return response.Header, answer, nil
}

// read reads a body. If its length is known, it allocates exactly that.
func read(response *http.Response) ([]byte, error) {
	if n := response.ContentLength; n > maxAnswer {
		return nil, fmt.Errorf("it has %d MiB; the maximum is %d", n>>20, maxAnswer>>20)
	} else if n >= 0 {
		body := make([]byte, n)
		_, err := io.ReadFull(response.Body, body)
		return body, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("it has more than the maximum of %d MiB", maxAnswer>>20)
	}
	return body, err
}

// errorText returns a server's message: {"error": "…"} in both protocols, otherwise the
// body.
func errorText(status int, body []byte) string {
	var answer struct {
		Error string `json:"error"`
	}
	text := strings.TrimSpace(string(body))
	if err := json.Unmarshal(body, &answer); err == nil && answer.Error != "" {
		text = answer.Error
	}
	if strings.HasPrefix(text, "Traceback ") { // The last line has the error; the log has it all.
		text = text[strings.LastIndexByte(text, '\n')+1:]
	}
	if text == "" {
		text = http.StatusText(status)
	}
	return fmt.Sprintf("the model server answered %d: %.*s", status, maxErrorText, text)
}

// checkInfo refuses a tensor that cannot be batched.
func checkInfo(kind string, info tensor.Info) error {
	switch {
	case info.Type.Size() == 0 && info.Type != tensor.Bytes:
		return fmt.Errorf("%s %q has elements of the type %s; only numbers, BOOL and BYTES are supported", kind, info.Name, info.Type)
	case len(info.Shape) == 0 || info.Shape[0] >= 0:
		return fmt.Errorf("%s %q has the shape %v; its first dimension must be open (-1), because it is the batch", kind, info.Name, info.Shape)
	}
	return nil
}

// checkAll checks all tensors of a signature.
func checkAll(inputs, outputs []tensor.Info) error {
	var errs []error
	for _, in := range inputs {
		errs = append(errs, checkInfo("input", in))
	}
	for _, out := range outputs {
		errs = append(errs, checkInfo("output", out))
	}
	if len(inputs) == 0 || len(outputs) == 0 {
		errs = append(errs, fmt.Errorf("the model server reports %d inputs and %d outputs; write both into the model's settings", len(inputs), len(outputs)))
	}
	return errors.Join(errs...)
}

// checkOutput checks an output against the signature.
func checkOutput(want tensor.Info, rows int, got tensor.Tensor) error {
	elements, err := tensor.Elements(got.Shape)
	switch {
	case got.Type != want.Type:
		return fmt.Errorf("the model returned %q as %s; its signature says %s", want.Name, got.Type, want.Type)
	case err != nil:
		return fmt.Errorf("the model returned %q: %w", want.Name, err)
	case len(got.Shape) == 0 || got.Shape[0] != int64(rows):
		return fmt.Errorf("the model returned %q with the shape %v for %d rows", want.Name, got.Shape, rows)
	case got.Type == tensor.Bytes:
		if err := tensor.CheckStrings(got.Data, elements); err != nil {
			return fmt.Errorf("the model returned %q with the shape %v: %w", want.Name, got.Shape, err)
		}
	case elements*int64(got.Type.Size()) != int64(len(got.Data)):
		return fmt.Errorf("the model returned %q with the shape %v and %d bytes", want.Name, got.Shape, len(got.Data))
	}
	return nil
}

// pick puts outputs into the signature's order and checks them.
func pick(want []tensor.Info, rows int, got []tensor.Tensor) ([]tensor.Tensor, error) {
	out := make([]tensor.Tensor, len(want))
	for i, w := range want {
		at := slices.IndexFunc(got, func(t tensor.Tensor) bool { return t.Name == w.Name })
		if at < 0 {
			return nil, fmt.Errorf("the model returned no output %q", w.Name)
		}
		if err := checkOutput(w, rows, got[at]); err != nil {
			return nil, err
		}
		out[i] = got[at]
	}
	return out, nil
}
