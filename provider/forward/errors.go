package forward

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"
)

// Error is why a request was not answered by the function, with the HTTP status
// that says so.
type Error struct {
	status     int
	retryAfter time.Duration
	message    string
}

// Error implements error with a sentence for the client.
func (e *Error) Error() string { return e.message }

// HTTPStatus is the status to answer with.
func (e *Error) HTTPStatus() int { return e.status }

// RetryAfter is when the client may try again; 0 says nothing about it.
func (e *Error) RetryAfter() time.Duration { return e.retryAfter }

// The ways in which a request can fail without an answer of the function.
var (
	// ErrCold: no instance became ready in time.
	ErrCold = unavailable("no instance of the function became ready in time; see its logs for the reason")
	// ErrQueueFull: too many requests wait for the function already.
	ErrQueueFull = &Error{http.StatusTooManyRequests, time.Second, "too many requests wait for an instance of this function; try again later"}
	// ErrBusy: every instance has as many requests as it takes.
	ErrBusy = &Error{http.StatusTooManyRequests, time.Second, "every instance of this function has as many requests as it takes at once; try again later"}
	// ErrInstanceLost: the instance went away after the request, or a part of
	// it, had been sent. It may have been executed, so it is not sent again.
	ErrInstanceLost = &Error{http.StatusBadGateway, 0, "the instance that had this request broke the connection off before it answered; see the function's logs for the reason"}
	// ErrExhausted: the provider has no file descriptor or memory left to
	// reach an instance.
	ErrExhausted = unavailable("the provider is out of connections; try again later")
	// ErrClosed: the function was removed or the provider is stopping.
	ErrClosed = unavailable("the function is being removed or the provider is stopping")
	// ErrAnswerTooLarge: the answer was to be held in memory and is too large
	// for that.
	ErrAnswerTooLarge = &Error{http.StatusBadGateway, 0, fmt.Sprintf("the function's answer is larger than %d MiB, the limit of what is not streamed", maxAnswer>>20)}
)

var (
	errLateBody      = &Error{http.StatusRequestTimeout, 0, "the request body stopped coming; the provider's --body-timeout says how long it waits for more"}
	errSwitchedEarly = &Error{http.StatusBadGateway, 0, "the function switched protocols before it had read the request's body"}
)

func unavailable(message string) *Error {
	return &Error{http.StatusServiceUnavailable, time.Second, message}
}

// problem is why there is no ready instance.
type problem struct {
	reason string
	refuse bool
}

// error is what a request is told that gets no instance.
func (p problem) error() *Error {
	switch {
	case p.reason == "":
		return ErrCold
	case p.refuse:
		return unavailable("the function cannot be served: " + p.reason)
	}
	return unavailable("no instance of the function became ready in time: " + p.reason)
}

// dialError says that no connection to an instance could be had: nothing was
// sent.
type dialError struct{ error }

// Unwrap returns the cause.
func (e *dialError) Unwrap() error { return e.error }

// exhausted reports whether err is a shortage of this process, which says
// nothing against the instance.
func exhausted(err error) bool {
	for _, shortage := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EAGAIN} {
		if errors.Is(err, shortage) {
			return true
		}
	}
	return false
}
