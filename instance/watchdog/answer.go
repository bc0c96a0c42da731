package watchdog

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// maxHeld is how much of an answer waits for the process's exit status,
// maxHeldByAll of all answers together: this memory does not count against the
// function's limit. More leaves at once as 200; if the process fails then, the
// answer breaks off.
const (
	maxHeld      = 4 << 20
	maxHeldByAll = 32 << 20
)

// answer is what a process writes on its way to the client.
type answer struct {
	w   http.ResponseWriter
	run *run
	// hold keeps what is written back until the process has ended.
	hold bool
	held []byte
	sent bool
	size int64
	// failed is why nothing more can be written.
	failed error
}

// write takes a piece. An error tells that the client is gone.
func (a *answer) write(piece []byte) error {
	a.size += int64(len(piece))
	if a.hold && a.keep(piece) {
		return nil
	}
	a.hold = false
	if len(a.held) > 0 {
		_ = a.send(a.held) // and so will the next one fail
		a.release()
	}
	return a.send(piece)
}

// keep keeps a piece back, unless it is too much.
func (a *answer) keep(piece []byte) bool {
	size := int64(len(piece))
	if len(a.held)+len(piece) > maxHeld {
		return false
	}
	if a.run.held.Add(size) > maxHeldByAll {
		a.run.held.Add(-size)
		return false
	}
	a.held = append(a.held, piece...)
	return true
}

// release lets go of what was kept back.
func (a *answer) release() {
	a.run.held.Add(-int64(len(a.held)))
	a.held = nil
}

func (a *answer) send(piece []byte) error {
	if a.failed != nil {
		return a.failed
	}
	control := http.NewResponseController(a.w)
	if !a.sent {
		// The process may go on reading.
		_ = control.EnableFullDuplex()
		a.describe()
		a.w.WriteHeader(http.StatusOK)
		a.sent = true
	}
	if _, a.failed = a.w.Write(piece); a.failed == nil {
		a.failed = control.Flush()
	}
	return a.failed
}

// describe sets the headers of an answer of the process's.
func (a *answer) describe() {
	header := a.w.Header()
	contentType := a.run.ContentType
	if contentType == "" {
		contentType = a.run.request.Header.Get("Content-Type")
	}
	// Without any, the HTTP server looks at the first bytes.
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	if !a.run.consumed.Load() {
		// The connection continues with the rest of this body, for which the
		// answer does not wait.
		header.Set("Connection", "close")
		_ = http.NewResponseController(a.w).EnableFullDuplex()
	}
}

// finish ends the answer. A verdict is why the process has failed.
func (a *answer) finish(verdict error, took time.Duration) {
	switch {
	case a.sent && verdict != nil:
		// The client must not take half an answer for all of it.
		a.failed = http.ErrAbortHandler
		panic(a.failed)
	case a.sent:
		return
	}
	a.describe()
	header := a.w.Header()
	header.Set("X-Duration-Seconds", fmt.Sprintf("%f", took.Seconds()))
	code := statusOf(verdict)
	if code == http.StatusGatewayTimeout {
		// The rest would have to be written within lateTime, too.
		header.Set("Connection", "close")
	}
	body := a.held
	if verdict != nil && (len(body) == 0 || code != http.StatusInternalServerError || errors.Is(verdict, ErrOutOfMemory)) {
		body = []byte(verdict.Error() + "\n")
		header.Set("Content-Type", "text/plain; charset=utf-8")
	}
	header.Set("Content-Length", fmt.Sprint(len(body)))
	a.w.WriteHeader(code)
	if _, a.failed = a.w.Write(body); a.failed == nil && !a.run.consumed.Load() {
		a.failed = http.NewResponseController(a.w).Flush()
	}
}

func statusOf(verdict error) int {
	switch {
	case verdict == nil:
		return http.StatusOK
	case errors.Is(verdict, errTimeout):
		return http.StatusGatewayTimeout
	case errors.Is(verdict, errBrokenBody):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}
