package build

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
)

// The values of a result's status.
const (
	inProgress = "in_progress"
	success    = "success"
	failed     = "failed"
)

// result is a line of the answer, or all of it.
type result struct {
	Log    []string `json:"log"`
	Image  string   `json:"image,omitempty"`
	Status string   `json:"status"`
	Error  string   `json:"error,omitempty"`
}

// answer tells the client what is done: each line at once if it asked for a
// stream, all of them in the end otherwise.
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

func streams(accept []string) bool {
	for _, part := range strings.Split(strings.Join(accept, ","), ",") {
		if kind, _, err := mime.ParseMediaType(part); err == nil && kind == "application/x-ndjson" {
			return true
		}
	}
	return false
}

// log tells one line of progress.
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

// send writes one result. That the client is gone is found out elsewhere, by the
// request's context.
func (a *answer) send(r result) {
	if r.Log == nil {
		r.Log = []string{}
	}
	if err := json.NewEncoder(a.w).Encode(r); err == nil && a.stream {
		_ = http.NewResponseController(a.w).Flush()
	}
}
