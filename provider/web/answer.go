// Package web is the HTTP plumbing of the provider's routes. It writes errors as one
// sentence with a status code and Retry-After (WriteError) and reads bodies within limits
// (BodyReader). It also has cross-origin rules (CORS), call IDs (IdentifyCall), locks by
// key (KeyedMutex), a Gate that waits for requests in flight, and a listener whose error
// names the process that has the port (Listen). It knows nothing of functions. Begin
// reading at WriteError.
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

// internalHeader marks an error of the provider, as opposed to one of the function.
const (
	internalHeader = "X-Openfaas-Internal"
	internalValue  = "provider"
)

// StatusHungUp is the status code of requests whose client left before the answer. The
// number comes from nginx.
const StatusHungUp = 499

// StatusOf returns the status code for an error: an HTTPError's own, 499 if the client
// hung up, 504 after a deadline, otherwise 500.
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

// WriteError answers with an error's sentence and the status code of StatusOf, which it
// returns. Every route of the provider answers errors with it.
func WriteError(w http.ResponseWriter, err error) int {
	return writeError(w, err, "text/plain; charset=utf-8", err.Error()+"\n")
}

// WriteErrorBelow is [WriteError] for a path below a function. The inference protocols have the
// paths /v1 and /v2; their clients parse every answer as JSON, so there the sentence is
// {"error": "…"}, or what [WriteOpenAIError] writes. Clients of functions see no paths of this machine ([Conceal]). With an empty path it is WriteError.
func WriteErrorBelow(w http.ResponseWriter, path string, err error) int {
	if path == "" {
		return WriteError(w, err)
	}
	first, _, _ := strings.Cut(strings.TrimLeft(path, "/"), "/")
	if first != "v1" && first != "v2" && !IsOpenAI(path) {
		return writeError(w, err, "text/plain; charset=utf-8", Conceal(err.Error())+"\n")
	}
	return writeError(w, err, "application/json", string(ErrorJSON(path, err))+"\n")
}

// ErrorJSON is the body of WriteErrorBelow in the form of JSON that the path has.
func ErrorJSON(path string, err error) []byte {
	if IsOpenAI(path) {
		return openAIError(err)
	}
	text, _ := json.Marshal(map[string]string{"error": Conceal(err.Error())}) // A map of strings is always JSON.
	return text
}

// IsOpenAI reports whether a path is one whose requests name a model in their body: OpenAI's, or those to which
// clients of Cohere, Jina and text-embeddings-inference send what is to be reranked.
func IsOpenAI(path string) bool {
	switch path {
	case "/v1/embeddings", "/v1/completions", "/v1/chat/completions", "/v1/rerank", "/v2/rerank", "/rerank":
		return true
	}
	return false
}

// WriteOpenAIError is [WriteError] in the form of OpenAI's API. It hides paths of this machine as WriteErrorBelow does.
func WriteOpenAIError(w http.ResponseWriter, err error) int {
	return writeError(w, err, "application/json", string(openAIError(err))+"\n")
}

func openAIError(err error) []byte {
	status := StatusOf(err)
	var out struct {
		Error struct {
			Message string  `json:"message"`
			Type    string  `json:"type"`
			Param   *string `json:"param"`
			Code    string  `json:"code"`
		} `json:"error"`
	}
	out.Error.Message, out.Error.Type = Conceal(err.Error()), "invalid_request_error"
	out.Error.Code = strings.ReplaceAll(strings.ToLower(http.StatusText(status)), " ", "_")
	switch {
	case status == http.StatusNotFound:
		param := "model"
		out.Error.Code, out.Error.Param = "model_not_found", &param
	case status == http.StatusUnauthorized:
		out.Error.Code = "invalid_api_key"
	case status == http.StatusTooManyRequests:
		out.Error.Type, out.Error.Code = "requests", "rate_limit_exceeded"
	case status >= http.StatusInternalServerError:
		out.Error.Type = "server_error"
	}
	text, _ := json.Marshal(out) // Strings are always JSON.
	return text
}

// writeError answers with an error's status code and this text of it.
func writeError(w http.ResponseWriter, err error, contentType, text string) int {
	status := StatusOf(err)
	h := w.Header()
	h[internalHeader] = []string{internalValue}
	h["Content-Type"] = []string{contentType}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	if after := retryAfter(err, status); after > 0 {
		h["Retry-After"] = []string{RetrySeconds(after)}
	}
	h["Content-Length"] = []string{strconv.Itoa(len(text))}
	w.WriteHeader(status)
	// The write fails if the client is gone.
	_, _ = io.WriteString(w, text)
	return status
}

// RetrySeconds returns a time as the header Retry-After says it.
func RetrySeconds(after time.Duration) string { return strconv.Itoa(int(math.Ceil(after.Seconds()))) }

// retryAfter returns how long a client should wait before another try, 0 for no header.
// The header's unit is a second, so that is the shortest time.
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

// WriteJSON answers 200 with value as JSON.
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

// ParseJSON reads a request's JSON object into value. what names the object that the
// route expects, for the error.
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
		// The error's own text names Go types.
		return Refuse(http.StatusBadRequest, "the request body must be %s as JSON: %q cannot be a %s", what, mistyped.Field, mistyped.Value)
	case errors.As(err, &mistyped):
		return Refuse(http.StatusBadRequest, "the request body must be %s as JSON, not a JSON %s", what, mistyped.Value)
	}
	return Refuse(http.StatusBadRequest, "the request body must be %s as JSON: %v", what, err)
}

// HTTPError is an error with its own status code.
type HTTPError interface {
	error
	// HTTPStatus is the status code, 400 to 599.
	HTTPStatus() int
}

// Retryable is an HTTPError after which another try may succeed.
type Retryable interface {
	HTTPError
	// RetryAfter returns how long to wait before that try, 0 if not known. The client
	// gets it rounded up to seconds.
	RetryAfter() time.Duration
}

// Clip cuts a name to 80 bytes, so a hostile one cannot fill the answer.
func Clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
