package web

import (
	"net/http"
	"time"
)

// Problem is why a function has no ready instance.
type Problem struct {
	reason string
	// Refuse: requests are refused at once instead of waiting.
	Refuse bool
}

// NewProblem returns a problem with a reason. Without one there is no problem, and nothing is
// refused.
func NewProblem(reason string, refuse bool) Problem { return Problem{reason, refuse && reason != ""} }

// Answer returns the answer to a request that gets no instance: cold without a problem.
func (p Problem) Answer(cold *Error) *Error {
	text := "no instance of the function became ready in time: "
	switch {
	case p.reason == "":
		return cold
	case p.Refuse:
		text = "the function cannot be served: "
	}
	return &Error{Status: http.StatusServiceUnavailable, After: time.Second, Text: text + p.reason}
}
