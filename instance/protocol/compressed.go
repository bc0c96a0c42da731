package protocol

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// leastCompressed is how long a response is at least that gets compressed, in
// bytes: below it, a link is rarely what takes the time.
const leastCompressed = 16 << 10

// refusal is an error with a status of its own.
type refusal struct {
	status int
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// statusOf is the status with which a request is refused.
func statusOf(err error) int {
	if r := new(refusal); errors.As(err, &r) {
		return r.status
	}
	return http.StatusBadRequest
}

// maxBody is the largest decompressed body, and the largest input of several
// images, in bytes.
func (m *Model) maxBody() int64 { return cmp.Or(m.MaxBody, defaultMaxBody) }

// inflate takes a request's body out of its content coding.
func (m *Model) inflate(r *frame.Request) error {
	encoding := r.Header["Content-Encoding"]
	if len(encoding) == 0 {
		return nil
	}
	body, err := Decompress(strings.Join(encoding, ", "), r.Body, m.maxBody())
	switch {
	case errors.Is(err, errCoding):
		return &refusal{http.StatusUnsupportedMediaType, err}
	case errors.Is(err, errInflated):
		return &refusal{http.StatusRequestEntityTooLarge, err}
	}
	r.Body = body
	return err
}

// pack compresses a response for a client that takes that. Tensors hardly become
// shorter, so they are compressed only for clients that compress, too.
func pack(response frame.Response, r frame.Request) frame.Response {
	isJSON := response.Header.Get("Content-Type") == "application/json"
	if len(response.Body) < leastCompressed || !isJSON && r.Header.Get("Content-Encoding") == "" {
		return response
	}
	chosen := chooseCoding(strings.Join(r.Header.Values("Accept-Encoding"), ","))
	if body, ok := Compress(chosen, response.Body); ok {
		response.Body = body
		response.Header["Content-Encoding"] = []string{chosen}
	}
	response.Header["Vary"] = []string{"Accept-Encoding"}
	return response
}
