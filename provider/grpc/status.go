package grpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/provider/web"
)

// code is a status code of gRPC.
type code int

const (
	ok                 code = 0
	canceled           code = 1
	invalidArgument    code = 3
	deadlineExceeded   code = 4
	notFound           code = 5
	permissionDenied   code = 7
	resourceExhausted  code = 8
	failedPrecondition code = 9
	aborted            code = 10
	unimplemented      code = 12
	internal           code = 13
	unavailable        code = 14
	unauthenticated    code = 16
)

// String returns the code's number.
func (c code) String() string { return strconv.Itoa(int(c)) }

// codes are the codes of HTTP's status codes. Others are invalidArgument from 400 on and internal from 500 on.
var codes = map[int]code{
	http.StatusOK:                    ok,
	http.StatusUnauthorized:          unauthenticated,
	http.StatusForbidden:             permissionDenied,
	http.StatusNotFound:              notFound,
	http.StatusMethodNotAllowed:      unimplemented,
	http.StatusRequestTimeout:        deadlineExceeded,
	http.StatusConflict:              aborted,
	http.StatusPreconditionFailed:    failedPrecondition,
	http.StatusRequestEntityTooLarge: resourceExhausted,
	http.StatusTooManyRequests:       resourceExhausted,
	web.StatusHungUp:                 canceled,
	http.StatusNotImplemented:        unimplemented,
	http.StatusBadGateway:            unavailable,
	http.StatusServiceUnavailable:    unavailable,
	http.StatusGatewayTimeout:        deadlineExceeded,
}

// codeOf returns the code of an HTTP status code.
func codeOf(httpStatus int) code {
	if c, known := codes[httpStatus]; known {
		return c
	}
	if httpStatus >= 400 && httpStatus < 500 {
		return invalidArgument
	}
	return internal
}

// status is how a call ended. It is an error unless its code is ok.
type status struct {
	code code
	text string
	// trailer are the headers of a refusal that say when another try may succeed.
	trailer http.Header
}

// Error returns the sentence for the client.
func (s *status) Error() string { return s.text }

// statusOf returns the status for an error, which is nil for ok.
func statusOf(err error) *status {
	var known *status
	var again web.Retryable
	switch {
	case err == nil:
		return &status{}
	case errors.As(err, &known):
		return known
	}
	s := &status{code: codeOf(web.StatusOf(err)), text: web.Conceal(err.Error())}
	if errors.As(err, &again) && again.RetryAfter() > 0 {
		s.trailer = http.Header{"Retry-After": {web.RetrySeconds(again.RetryAfter())}}
	}
	return s
}

// refusal returns the status of an HTTP answer that is an error.
func refusal(httpStatus int, h http.Header, body []byte) *status {
	s := &status{code: codeOf(httpStatus), trailer: http.Header{}}
	for _, name := range []string{"Retry-After", "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"} {
		if values := h[name]; values != nil {
			s.trailer[name] = values
		}
	}
	var told struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &told) == nil && told.Error != "" {
		s.text = told.Error
	} else {
		s.text = strings.TrimSpace(string(body[:min(len(body), maxText)]))
	}
	if s.text == "" {
		s.text = fmt.Sprintf("the function answered with status %d", httpStatus)
	}
	if s.code == ok {
		s.code = internal
	}
	return s
}

// maxText is the most bytes of a message in a status: it is sent as a header.
const maxText = 4 << 10

// encodeMessage returns a message as gRPC sends it, with percent-encoding.
func encodeMessage(text string) string {
	var out strings.Builder
	for _, b := range []byte(text[:min(len(text), maxText)]) {
		if b >= ' ' && b <= '~' && b != '%' {
			out.WriteByte(b)
			continue
		}
		fmt.Fprintf(&out, "%%%02X", b)
	}
	return out.String()
}
