package web

import (
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// OpenFaaS's gateway adds these headers to every request: a unique ID, and the time of
// arrival in ns since 1970. The answer carries them, too.
const (
	idHeader        = "X-Call-Id"
	startTimeHeader = "X-Start-Time"
)

// FunctionStatusHeader holds the status of a function's answer in the callback that posts the answer. Every
// callback has it, so it tells callbacks from other requests; only functions take callbacks here.
const FunctionStatusHeader = "X-Function-Status"

// RefuseCallback refuses a callback, for routes that are not functions. Its contents are a function's answer and
// its URL is an anonymous client's, so it could deploy.
func RefuseCallback(r *http.Request) error {
	if r.Header.Get(FunctionStatusHeader) == "" {
		return nil
	}
	return Refuse(http.StatusForbidden, "a callback, which has the header %s, may only invoke functions here", FunctionStatusHeader)
}

// IdentifyCall adds both headers to a request that has not come through the gateway, and
// copies them to the answer.
func IdentifyCall(answer, request http.Header, now time.Time) {
	if request[idHeader] == nil {
		request[idHeader] = []string{uuid.NewString()}
	}
	if request[startTimeHeader] == nil {
		request[startTimeHeader] = []string{strconv.FormatInt(now.UnixNano(), 10)}
	}
	answer[idHeader], answer[startTimeHeader] = request[idHeader], request[startTimeHeader]
}
