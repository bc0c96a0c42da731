package web

import (
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
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
		request[idHeader] = []string{newCallID()}
	}
	if request[startTimeHeader] == nil {
		request[startTimeHeader] = []string{strconv.FormatInt(now.UnixNano(), 10)}
	}
	answer[idHeader], answer[startTimeHeader] = request[idHeader], request[startTimeHeader]
}

// newCallID is a random UUID (RFC 9562, version 4). It tells requests apart and
// is no secret, so the fast source will do.
func newCallID() string {
	var b [16]byte
	for i := range 2 {
		n := rand.Uint64()
		for j := range 8 {
			b[8*i+j] = byte(n >> (8 * j))
		}
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	var text [36]byte
	for i, at := range []struct{ from, to, position int }{{0, 4, 0}, {4, 6, 9}, {6, 8, 14}, {8, 10, 19}, {10, 16, 24}} {
		hex.Encode(text[at.position:], b[at.from:at.to])
		if i > 0 {
			text[at.position-1] = '-'
		}
	}
	return string(text[:])
}
