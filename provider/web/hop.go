package web

import (
	"net/http"
	"net/textproto"
	"strings"
)

// RevisionHeader is the header of an answer with the number of the function's revision that gave it.
const RevisionHeader = "X-Infer-Revision"

// hopByHop are the headers that belong to one connection (RFC 9110 §7.6.1), and those
// that the next connection sets itself from the body.
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect", "Content-Length"}

// DropHopByHop removes the headers that are not passed on: those of one connection, including the
// ones that Connection names, and those that the next connection sets itself.
func DropHopByHop(h http.Header) {
	for _, names := range h["Connection"] {
		for name := range strings.SplitSeq(names, ",") {
			delete(h, textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)))
		}
	}
	for _, name := range hopByHop {
		delete(h, name)
	}
}
