package web

import (
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// The names that OpenFaaS's gateway gives every request: who it is, and when it
// came, in ns since 1970. They come back with the answer.
const (
	idHeader        = "X-Call-Id"
	startTimeHeader = "X-Start-Time"
)

// IdentifyCall gives a request that did not come through the gateway these names,
// and puts them into the answer.
func IdentifyCall(answer, request http.Header, now time.Time) {
	if request[idHeader] == nil {
		request[idHeader] = []string{uuid.NewString()}
	}
	if request[startTimeHeader] == nil {
		request[startTimeHeader] = []string{strconv.FormatInt(now.UnixNano(), 10)}
	}
	answer[idHeader], answer[startTimeHeader] = request[idHeader], request[startTimeHeader]
}
