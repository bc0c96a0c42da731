// Package web is the HTTP plumbing of the provider's routes: errors as one sentence with
// a status code and what tells clients whether to try again (WriteError), bodies that
// are read within limits (BodyReader), cross-origin rules (CORS), call IDs
// (IdentifyCall), locks by key (KeyedMutex), a Gate that waits for the requests in
// flight, and listeners that say who has a port (Listen). It knows nothing of functions.
package web

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// internalHeader tells an error of the provider from one of the function.
const (
	internalHeader = "X-Openfaas-Internal"
	internalValue  = "provider"
)

// StatusHungUp is for requests whose client left before the answer; nginx made
// the number up.
const StatusHungUp = 499

// StatusOf is the status code for an error.
func StatusOf(err error) int {
	var known HTTPError
	switch {
	case errors.As(err, &known) && known.HTTPStatus() >= 400 && known.HTTPStatus() <= 599:
		return known.HTTPStatus()
	case errors.Is(err, context.Canceled):
		return StatusHungUp
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

// WriteError answers with an error's sentence, as every route of the provider does, and
// returns the status code: an HTTPError's own, 499 if the client hung up, 504 after a
// deadline, else 500.
func WriteError(w http.ResponseWriter, err error) int {
	status := StatusOf(err)
	h := w.Header()
	h[internalHeader] = []string{internalValue}
	h["Content-Type"] = []string{"text/plain; charset=utf-8"}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	if after := retryAfter(err, status); after > 0 {
		h["Retry-After"] = []string{strconv.Itoa(int(math.Ceil(after.Seconds())))}
	}
	text := err.Error() + "\n"
	h["Content-Length"] = []string{strconv.Itoa(len(text))}
	w.WriteHeader(status)
	// A client that is gone cannot be told.
	_, _ = io.WriteString(w, text)
	return status
}

// retryAfter is how long a client is to wait before another try, 0 where
// nothing is to be said. A second is the shortest that the header can tell.
func retryAfter(err error, status int) time.Duration {
	var again Retryable
	if errors.As(err, &again) && again.RetryAfter() > 0 {
		return again.RetryAfter()
	}
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		return time.Second
	}
	return 0
}

// WriteJSON answers 200 with value.
func WriteJSON(w http.ResponseWriter, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		WriteError(w, Refuse(http.StatusInternalServerError, "the answer cannot be written as JSON: %v", err))
		return
	}
	text = append(text, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text)
}

// ParseJSON reads a request's JSON object into value; what is the object that
// the route expects, for the error.
func ParseJSON(text []byte, what string, value any) error {
	if len(text) == 0 {
		return Refuse(http.StatusBadRequest, "the request body is empty; it must be %s as JSON", what)
	}
	err := json.Unmarshal(text, value)
	var mistyped *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &mistyped) && mistyped.Field != "":
		// Its own words are about Go's types.
		return Refuse(http.StatusBadRequest, "the request body must be %s as JSON: %q cannot be a %s", what, mistyped.Field, mistyped.Value)
	case errors.As(err, &mistyped):
		return Refuse(http.StatusBadRequest, "the request body must be %s as JSON, and not: %s", what, mistyped.Value)
	}
	return Refuse(http.StatusBadRequest, "the request body must be %s as JSON: %v", what, err)
}

// HTTPError is an error that knows how it is to be answered.
type HTTPError interface {
	error
	// HTTPStatus is the status code, 400 to 599.
	HTTPStatus() int
}

// Retryable is an HTTPError after which another try may succeed.
type Retryable interface {
	HTTPError
	// RetryAfter is how long to wait before it, rounded up to seconds for the
	// client; 0 says nothing about it.
	RetryAfter() time.Duration
}

// Clip keeps a hostile name from filling the answer.
func Clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
