package web

import (
	"fmt"
	"net/http"
	"time"
)

// Error is the reason why a request is refused, with the status code of the answer.
type Error struct {
	// Status is the status code, 400 to 599.
	Status int
	// After is how long to wait before another try that may succeed, 0 if not known.
	After time.Duration
	// Final says that another try of the same request would end in the same way.
	Final bool
	// Text is a sentence for the client.
	Text string
	// Cause is the underlying error, nil if there is none.
	Cause error
}

// Refuse returns an Error with a status code and a sentence.
func Refuse(status int, format string, args ...any) *Error {
	return &Error{Status: status, Text: fmt.Sprintf(format, args...)}
}

// Unavailable returns an Error with status 503. Another try may succeed after the given
// time.
func Unavailable(after time.Duration, format string, args ...any) *Error {
	return &Error{Status: http.StatusServiceUnavailable, After: after, Text: fmt.Sprintf(format, args...)}
}

// BadRequest returns an Error with status 400 and the text of err.
func BadRequest(err error) *Error {
	return &Error{Status: http.StatusBadRequest, Text: err.Error(), Cause: err}
}

// Error returns Text.
func (e *Error) Error() string { return e.Text }

// Unwrap returns Cause.
func (e *Error) Unwrap() error { return e.Cause }

// HTTPStatus returns Status.
func (e *Error) HTTPStatus() int { return e.Status }

// RetryAfter returns After.
func (e *Error) RetryAfter() time.Duration { return e.After }
