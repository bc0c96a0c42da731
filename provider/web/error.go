package web

import (
	"fmt"
	"net/http"
	"time"
)

// Error is why a request is not granted: what it is answered with, and whether it may be
// sent again.
type Error struct {
	// Status is the status code, 400 to 599.
	Status int
	// After is how long to wait before another try that may succeed, 0 where nothing
	// is to be said of it.
	After time.Duration
	// Text is a sentence for the client.
	Text string
	// Cause is what was found, nil if there is no more to say.
	Cause error
}

// Refuse is an error with a status code and a sentence.
func Refuse(status int, format string, args ...any) *Error {
	return &Error{Status: status, Text: fmt.Sprintf(format, args...)}
}

// Unavailable is a 503 after which another try may succeed.
func Unavailable(after time.Duration, format string, args ...any) *Error {
	return &Error{Status: http.StatusServiceUnavailable, After: after, Text: fmt.Sprintf(format, args...)}
}

// BadRequest is a 400: the request is at fault, as the error says.
func BadRequest(err error) *Error {
	return &Error{Status: http.StatusBadRequest, Text: err.Error(), Cause: err}
}

// Error is the sentence.
func (e *Error) Error() string { return e.Text }

// Unwrap returns what was found.
func (e *Error) Unwrap() error { return e.Cause }

// HTTPStatus is the status code to answer with.
func (e *Error) HTTPStatus() int { return e.Status }

// RetryAfter is how long to wait before another try, 0 where nothing is to be said.
func (e *Error) RetryAfter() time.Duration { return e.After }
