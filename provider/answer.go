package provider

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"
)

// internalHeader tells an error of the provider from one of the function.
const (
	internalHeader = "X-Openfaas-Internal"
	internalValue  = "provider"
)

// statusHungUp is for requests whose client left before the answer; nginx made
// the number up.
const statusHungUp = 499

// statusOf is the status code for an error.
func statusOf(err error) int {
	var known HTTPError
	switch {
	case errors.As(err, &known) && known.HTTPStatus() >= 400 && known.HTTPStatus() <= 599:
		return known.HTTPStatus()
	case errors.Is(err, context.Canceled):
		return statusHungUp
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

// WriteError answers with an error's sentence, as every route of the provider
// does, and returns the status code: an HTTPError's own, 499 if the client hung
// up, 504 after a deadline, else 500.
func WriteError(w http.ResponseWriter, err error) int { return writeError(w, err) }

// writeError answers with an error's sentence and returns the status code.
func writeError(w http.ResponseWriter, err error) int {
	status := statusOf(err)
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

// writeJSON answers 200 with value.
func writeJSON(w http.ResponseWriter, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		writeError(w, refuse(http.StatusInternalServerError, "the answer cannot be written as JSON: %v", err))
		return
	}
	text = append(text, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text)
}

// readText reads a request's body of at most limit bytes. A length that is too
// large by the header is refused before anything is asked of the client.
func readText(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, tooLarge(limit)
	}
	if err != nil {
		return nil, unreadable(err)
	}
	return text, nil
}

// parseJSON reads a request's JSON object into value; what is the object that
// the route expects, for the error.
func parseJSON(text []byte, what string, value any) error {
	if len(text) == 0 {
		return refuse(http.StatusBadRequest, "the request body is empty; it must be %s as JSON", what)
	}
	err := json.Unmarshal(text, value)
	var mistyped *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &mistyped) && mistyped.Field != "":
		// Its own words are about Go's types.
		return refuse(http.StatusBadRequest, "the request body must be %s as JSON: %q cannot be a %s", what, mistyped.Field, mistyped.Value)
	case errors.As(err, &mistyped):
		return refuse(http.StatusBadRequest, "the request body must be %s as JSON, and not: %s", what, mistyped.Value)
	}
	return refuse(http.StatusBadRequest, "the request body must be %s as JSON: %v", what, err)
}
