package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// Server is one model at a server.
type Server interface {
	// Ready returns nil if the model can be asked.
	Ready(ctx context.Context) error
	// Signature asks what the model takes and gives. It fails if there is an input
	// or output without a batch dimension, or of a type that no engine here takes.
	Signature(ctx context.Context) (inputs, outputs []tensor.Info, err error)
	// Infer has the server run so many rows, and returns the outputs that are
	// named, checked against what Signature said of them. The error wraps
	// [ErrNoAnswer] if the server did not answer; it is an [Error] if it refused.
	Infer(ctx context.Context, rows int, inputs []tensor.Tensor, outputs []tensor.Info) ([]tensor.Tensor, error)
	// Close lets go of connections.
	Close()
}

// ErrNoAnswer says that a server was not reached, broke off or took too long.
var ErrNoAnswer = errors.New("the model server did not answer")

// Error is what a server answered instead of a result.
type Error struct {
	// Status is HTTP's, Text what the server says.
	Status int
	Text   string
}

// Error says what the server said.
func (e *Error) Error() string { return e.Text }

const (
	// largest is the most bytes of an answer.
	largest = 1 << 30
	// largestError is the most bytes of an error's text that are passed on.
	largestError = 2000
	// idle is how long a connection is kept for the next batch.
	idle = 5 * time.Minute
)

// caller makes requests of a server at an address, for one model.
type caller struct {
	base, model string
	client      *http.Client
}

func newCaller(base, model string) caller {
	return caller{base: strings.TrimRight(base, "/"), model: model, client: &http.Client{
		Transport: &http.Transport{
			Proxy: nil, DisableCompression: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: idle,
			WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10,
		},
		// A server that asks for another address is no model server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close implements Server.
func (c *caller) Close() { c.client.CloseIdleConnections() }

// ask makes a request. Any status but 200 is an [Error].
func (c *caller) ask(ctx context.Context, method, path string, header http.Header, body []byte) (http.Header, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	// A connection that the server has just closed for being idle is no reason to
	// fail: what is inferred can be asked again. An empty value is not sent.
	r.Header["Idempotency-Key"] = []string{}
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
		return nil, nil, &Error{Status: response.StatusCode, Text: complaint(response.StatusCode, answer)}
	}
	return response.Header, answer, nil
}

// read reads a body, into memory of its size where that is known.
func read(response *http.Response) ([]byte, error) {
	if n := response.ContentLength; n > largest {
		return nil, fmt.Errorf("it has %d MiB; at most %d", n>>20, largest>>20)
	} else if n >= 0 {
		body := make([]byte, n)
		_, err := io.ReadFull(response.Body, body)
		return body, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, largest+1))
	if err == nil && len(body) > largest {
		err = fmt.Errorf("it has more than %d MiB", largest>>20)
	}
	return body, err
}

// complaint is what a server says is wrong: {"error": "…"} in both protocols.
func complaint(status int, body []byte) string {
	var told struct {
		Error string `json:"error"`
	}
	text := strings.TrimSpace(string(body))
	if err := json.Unmarshal(body, &told); err == nil && told.Error != "" {
		text = told.Error
	}
	if strings.HasPrefix(text, "Traceback ") { // Its last line says what; the log has the whole.
		text = text[strings.LastIndexByte(text, '\n')+1:]
	}
	if text == "" {
		text = http.StatusText(status)
	}
	return fmt.Sprintf("the model server answered %d: %.*s", status, largestError, text)
}

// checkInfo refuses what cannot be put into batches.
func checkInfo(kind string, info tensor.Info) error {
	switch {
	case info.Type.Size() == 0:
		return fmt.Errorf("%s %q has elements of the type %s; numbers and BOOL are taken", kind, info.Name, info.Type)
	case len(info.Shape) == 0 || info.Shape[0] >= 0:
		return fmt.Errorf("%s %q has the shape %v; its first dimension must be open (-1), for the requests of a batch", kind, info.Name, info.Shape)
	}
	return nil
}

// checkAll is checkInfo for a whole signature.
func checkAll(inputs, outputs []tensor.Info) error {
	var errs []error
	for _, in := range inputs {
		errs = append(errs, checkInfo("input", in))
	}
	for _, out := range outputs {
		errs = append(errs, checkInfo("output", out))
	}
	if len(inputs) == 0 || len(outputs) == 0 {
		errs = append(errs, fmt.Errorf("the model server tells of %d inputs and %d outputs; write both into the model's settings", len(inputs), len(outputs)))
	}
	return errors.Join(errs...)
}

// checkOutput compares an output with what the signature says of it.
func checkOutput(want tensor.Info, rows int, got tensor.Tensor) error {
	elements, err := tensor.Elements(got.Shape)
	switch {
	case got.Type != want.Type:
		return fmt.Errorf("the model gave %q as %s; its signature says %s", want.Name, got.Type, want.Type)
	case err != nil:
		return fmt.Errorf("the model gave %q: %w", want.Name, err)
	case len(got.Shape) == 0 || got.Shape[0] != int64(rows):
		return fmt.Errorf("the model gave %q with the shape %v for %d rows", want.Name, got.Shape, rows)
	case elements*int64(got.Type.Size()) != int64(len(got.Data)):
		return fmt.Errorf("the model gave %q with the shape %v and %d bytes", want.Name, got.Shape, len(got.Data))
	}
	return nil
}

// pick puts outputs into the signature's order and checks them.
func pick(want []tensor.Info, rows int, got []tensor.Tensor) ([]tensor.Tensor, error) {
	out := make([]tensor.Tensor, len(want))
	for i, w := range want {
		at := slices.IndexFunc(got, func(t tensor.Tensor) bool { return t.Name == w.Name })
		if at < 0 {
			return nil, fmt.Errorf("the model gave no output %q", w.Name)
		}
		if err := checkOutput(w, rows, got[at]); err != nil {
			return nil, err
		}
		out[i] = got[at]
	}
	return out, nil
}
