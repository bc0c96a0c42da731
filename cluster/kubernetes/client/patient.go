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

// RetryTransport wraps next. If an informer's list or watch cannot reach the API server,
// it retries until the request's context ends. Every other request fails at once, as
// before. Pass it to [rest.Config.Wrap].
func RetryTransport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !fromInformer(r) {
		return t.next.RoundTrip(r)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		answer, err := t.next.RoundTrip(r)
		if err == nil || !connectionFailed(err) {
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

// fromInformer reports whether an informer sent the request: it watches, or lists from
// a resource version.
func fromInformer(r *http.Request) bool {
	query := r.URL.Query()
	return r.Method == http.MethodGet && (query.Has("watch") || query.Has("resourceVersion"))
}

// connectionFailed reports whether no connection was made, or it broke before an answer,
// as happens behind a load balancer without a healthy API server. Errors of TLS do not
// count.
func connectionFailed(err error) bool {
	var operation *net.OpError
	return errors.Is(err, io.EOF) || errors.As(err, &operation) && slices.Contains([]string{"dial", "read", "write"}, operation.Op)
}
