package client

import (
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"time"
)

// pause is the time between two tries to connect.
const pause = 500 * time.Millisecond

// RetryTransport is next, but lists and watches of informers that find no API server wait
// for it until their context ends. Everything else fails at once, as before. It is
// for [rest.Config.Wrap].
func RetryTransport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !informers(r) {
		return t.next.RoundTrip(r)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		answer, err := t.next.RoundTrip(r)
		if err == nil || !unconnected(err) {
			return answer, err
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return nil, err
		}
	}
}

// informers reports whether a request is one of an informer: it watches, or lists from
// a version on.
func informers(r *http.Request) bool {
	query := r.URL.Query()
	return r.Method == http.MethodGet && (query.Has("watch") || query.Has("resourceVersion"))
}

// unconnected reports whether there was no connection, or it broke before an answer,
// as behind a load balancer that has nobody to pass it on to. What TLS refuses is
// another matter.
func unconnected(err error) bool {
	var operation *net.OpError
	return errors.Is(err, io.EOF) || errors.As(err, &operation) && slices.Contains([]string{"dial", "read", "write"}, operation.Op)
}
