package web

import (
	"net"
	"net/http"
	"time"

	"github.com/faas-infer/faas-infer/instance/duplex"
)

// MaxHead is the most bytes that a request's first line and headers may take, 64 KiB.
// net/http answers 431 above that.
const MaxHead = 64 << 10

const (
	// headTime is how long a client may take to send a request's head.
	headTime = 10 * time.Second
	// idleTime is how long a connection is kept without a request. The stock gateway and
	// Go's own client close theirs after 90 s. If the provider closed one first, a
	// request might be on its way over it.
	idleTime = 3 * time.Minute
	// maxStreams is the most requests in progress of one HTTP/2 connection. net/http refuses others, and closes
	// the connection of a client that opens and resets four times as many that have not begun.
	maxStreams = 256
)

// NewServer returns a server of HTTP/1 and HTTP/2, with and without TLS, that bounds what a connection
// costs: the time, the size and the fields of a request's head, the time without a request, and the
// requests in progress. bounds bound what the connections of bounds' listeners, and their HTTP/2 streams, cost
// together. Handlers bound bodies with a [BodyReader].
func NewServer(handler http.Handler, bounds *Connections) *http.Server {
	server := &http.Server{
		Handler: boundFields(handler), ReadHeaderTimeout: headTime, IdleTimeout: idleTime, MaxHeaderBytes: MaxHead,
		Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	bounds.apply(server)
	return server
}

// Serve serves at a listener in the background. The channel gets the result of [http.Server.Serve]; it
// must have room for it.
func Serve(served chan<- error, server *http.Server, l net.Listener) {
	go func() { served <- server.Serve(l) }()
}

// boundFields answers requests with more than [duplex.MaxFields] fields with 431.
func boundFields(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if duplex.CountFields(r.Header) <= duplex.MaxFields {
			handler.ServeHTTP(w, r)
			return
		}
		r.Header = http.Header{} // The connection keeps the request for as long as it lasts.
		CloseAfter(w, r)
		// net/http reads the rest of the body. It fails if the client is gone.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(duplex.Linger))
		WriteError(w, Refuse(http.StatusRequestHeaderFieldsTooLarge,
			"the request has more than %d header fields", duplex.MaxFields))
	})
}
