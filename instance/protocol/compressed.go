package protocol

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// minCompressed is the minimum length in bytes of a response that pack compresses. The
// transfer of a shorter one rarely takes long.
const minCompressed = 16 << 10

// refusal is an error with its own HTTP status.
type refusal struct {
	status int
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// statusOf returns the HTTP status for a request that failed with err.
func statusOf(err error) int {
	if r := new(refusal); errors.As(err, &r) {
		return r.status
	}
	return http.StatusBadRequest
}

// maxBody returns the maximum decompressed body, which is also the maximum input made of
// several images, in bytes.
func (m *Model) maxBody() int64 { return cmp.Or(m.MaxBody, defaultMaxBody) }

// inflate decompresses a request's body by its Content-Encoding.
func (m *Model) inflate(r *frame.Request) error {
	encoding := r.Header["Content-Encoding"]
	if len(encoding) == 0 {
		return nil
	}
	body, err := decompress(strings.Join(encoding, ", "), r.Body, m.maxBody())
	switch {
	case errors.Is(err, errCoding):
		return &refusal{http.StatusUnsupportedMediaType, err}
	case errors.Is(err, errInflated):
		return &refusal{http.StatusRequestEntityTooLarge, err}
	}
	r.Body = body
	return err
}

// pack compresses a response if the client accepts that. Binary tensors hardly shrink, so
// pack compresses them only for clients whose requests are compressed, too.
func pack(response frame.Response, r frame.Request) frame.Response {
	isJSON := response.Header.Get("Content-Type") == "application/json"
	if len(response.Body) < minCompressed || !isJSON && r.Header.Get("Content-Encoding") == "" {
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
