package dispatch

import (
	"net/http"
	"time"
)

// Error is why a request was not executed, with the HTTP status that says so.
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

// The ways in which a request can fail before or beside its execution.
var (
	// ErrLate: the deadline can no longer be met, so the request is not run.
	ErrLate = &Error{http.StatusServiceUnavailable, time.Second, "the latency objective can no longer be met for this request; try again later or lower the load"}
	// ErrCold: no instance became ready in time.
	ErrCold = &Error{http.StatusServiceUnavailable, time.Second, "no instance of the function became ready in time; see its status for the reason"}
	// ErrQueueFull: too many requests wait for the function already.
	ErrQueueFull = &Error{http.StatusTooManyRequests, time.Second, "too many requests wait for this function; try again later"}
	// ErrInstanceLost: the instance died with the request and there was no
	// time, or no second chance, to run it elsewhere.
	ErrInstanceLost = &Error{http.StatusBadGateway, 0, "the instance that executed this request died"}
	// ErrRefused: the instance would not take the batch.
	ErrRefused = &Error{http.StatusBadGateway, 0, "the instance refused the batch that this request was in"}
	// ErrExhausted: the provider has no file descriptor or memory left to
	// reach an instance.
	ErrExhausted = &Error{http.StatusServiceUnavailable, time.Second, "the provider is out of connections; try again later"}
	// ErrClosed: the function was removed or the provider is stopping.
	ErrClosed = &Error{http.StatusServiceUnavailable, time.Second, "the function is being removed or the provider is stopping"}
)
