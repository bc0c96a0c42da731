package build

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
)

// The values of result.Status.
const (
	inProgress = "in_progress"
	success    = "success"
	failed     = "failed"
)

// result is one line of a streamed answer, or the whole answer.
type result struct {
	Log    []string `json:"log"`
	Image  string   `json:"image,omitempty"`
	Status string   `json:"status"`
	Error  string   `json:"error,omitempty"`
}

// answer reports a build's progress to the client: each line at once if the client asked
// for a stream, otherwise all lines at the end.
type answer struct {
	w      http.ResponseWriter
	stream bool
	lines  []string
}

func newAnswer(w http.ResponseWriter, r *http.Request) *answer {
	a := &answer{w: w, stream: streams(r.Header.Values("Accept"))}
	kind := "application/json"
	if a.stream {
		kind = "application/x-ndjson"
	}
	w.Header().Set("Content-Type", kind)
	return a
}

// streams reports whether the Accept headers ask for a stream.
func streams(accept []string) bool {
	for _, part := range strings.Split(strings.Join(accept, ","), ",") {
		if kind, _, err := mime.ParseMediaType(part); err == nil && kind == "application/x-ndjson" {
			return true
		}
	}
	return false
}

// log reports one line of progress.
func (a *answer) log(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if a.stream {
		a.send(result{Log: []string{line}, Status: inProgress})
		return
	}
	a.lines = append(a.lines, line)
}

// succeed and fail end the answer.
func (a *answer) succeed(image string) {
	a.send(result{Log: a.lines, Image: image, Status: success})
}

func (a *answer) fail(image string, err error) {
	a.send(result{Log: a.lines, Image: image, Status: failed, Error: err.Error()})
}

// send writes one result. It ignores a client that is gone; the request's context ends
// the build then.
func (a *answer) send(r result) {
	if r.Log == nil {
		r.Log = []string{}
	}
	if err := json.NewEncoder(a.w).Encode(r); err == nil && a.stream {
		_ = http.NewResponseController(a.w).Flush()
	}
}
