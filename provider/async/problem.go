package async

import (
	"fmt"
	"net/http"
	"time"
)

// Error is one sentence with the HTTP status to answer it with.
type Error struct {
	status int
	after  time.Duration
	text   string
}

// NewError makes an error.
func NewError(status int, format string, args ...any) *Error {
	return &Error{status: status, text: fmt.Sprintf(format, args...)}
}

// Unavailable is a 503 after which another try may succeed.
func Unavailable(format string, args ...any) *Error {
	return &Error{http.StatusServiceUnavailable, 2 * time.Second, fmt.Sprintf(format, args...)}
}

// Error is the sentence.
func (e *Error) Error() string { return e.text }

// HTTPStatus is the status code to answer with.
func (e *Error) HTTPStatus() int { return e.status }

// RetryAfter is how long to wait before another try, 0 where none helps.
func (e *Error) RetryAfter() time.Duration { return e.after }
