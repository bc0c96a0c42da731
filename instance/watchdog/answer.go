package watchdog

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// maxHeld is how many bytes of an answer wait for the process's exit status, maxHeldByAll
// the same for all answers together. This memory does not count against the function's
// limit. A larger answer is sent at once with status 200. If the process then fails, the
// answer breaks off.
const (
	maxHeld      = 4 << 20
	maxHeldByAll = 32 << 20
)

// answer carries a process's output to the client.
type answer struct {
	w   http.ResponseWriter
	run *run
	// hold says to hold the output back until the process has ended.
	hold bool
	held []byte
	sent bool
	size int64
	// failed says why nothing more can be written, nil if it can.
	failed error
}

// write takes a piece of output. An error says that the client is gone.
func (a *answer) write(piece []byte) error {
	a.size += int64(len(piece))
	if a.hold && a.keep(piece) {
		return nil
	}
	a.hold = false
	if len(a.held) > 0 {
		_ = a.send(a.held) // If it fails, so does the next send.
		a.release()
	}
	return a.send(piece)
}

// keep holds a piece back. It returns false if that exceeds a limit.
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

// release frees what was held back.
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
		// The process may still read the request's body.
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

// describe sets the headers of the process's answer.
func (a *answer) describe() {
	header := a.w.Header()
	contentType := a.run.ContentType
	if contentType == "" {
		contentType = a.run.request.Header.Get("Content-Type")
	}
	// Without one, net/http detects it from the first bytes.
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	if !a.run.consumed.Load() {
		// The answer does not wait for the rest of this body, which would come before
		// the connection's next request.
		header.Set("Connection", "close")
		_ = http.NewResponseController(a.w).EnableFullDuplex()
	}
}

// finish ends the answer. verdict says why the process failed, nil if it did not.
func (a *answer) finish(verdict error, took time.Duration) {
	switch {
	case a.sent && verdict != nil:
		// The client must not mistake half an answer for a complete one.
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
		// The connection's write deadline, lateTime, would also apply to later answers.
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
