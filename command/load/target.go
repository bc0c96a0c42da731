package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Target describes one receiver of requests, and the requests.
type Target struct {
	// Name identifies the target in results.
	Name string
	// URL receives the requests; its scheme must be http, or https if TLS is set.
	URL string
	// TLS, if set, is the configuration of TLS to a URL with https. It must name the server, or skip the
	// verification of its certificate.
	TLS *tls.Config
	// Socket, if set, is the path of a Unix socket that receives the requests
	// instead. URL then only gives the path and the Host header.
	Socket string
	// Method is POST if empty.
	Method string
	// Send, if set, replaces HTTP/1.1 at URL: it sends one body and returns the
	// answer's status, an HTTP status code, and the answer. It is called from several
	// goroutines. With Send, URL, Socket, Method and Header have no effect.
	Send func(ctx context.Context, body []byte) (status int, answer []byte, err error)
	// Header is sent with every request. Host, Content-Length and
	// Connection are the generator's own.
	Header http.Header
	// HeaderOf, if set, returns what the header of request i has beside Header. It is
	// called from several goroutines.
	HeaderOf func(i int) http.Header
	// Body returns the body of request i; see [Cycle]. It is called from
	// several goroutines, and what it returns is not changed.
	Body func(i int) []byte
	// Rate is the number of requests per second, with gaps by Arrivals (Uniform if
	// empty). A closed loop ignores both.
	Rate     float64
	Arrivals Arrivals
	// Shape, if set, scales Rate over time: it returns the fraction of requests,
	// 0 to 1, that are sent at a time from the start.
	Shape func(at time.Duration) float64
	// SLO is the latency within which an answer counts as in time. With 0, every
	// good answer does.
	SLO time.Duration
	// Verify, if set, checks the body of the answer (status 2xx) to request i and
	// returns an error if it is wrong. The body is valid until Verify returns. Verify
	// is called from several goroutines.
	Verify func(i int, body []byte) error
}

// Cycle returns a Body that repeats bodies in order.
func Cycle(bodies ...[]byte) func(i int) []byte {
	return func(i int) []byte {
		if len(bodies) == 0 {
			return nil
		}
		return bodies[i%len(bodies)]
	}
}

// endpoint is a resolved target: where to dial, and the request's head up to the value
// of Content-Length.
type endpoint struct {
	send             func(ctx context.Context, body []byte) (int, []byte, error)
	network, address string
	method           string
	prefix           []byte
	tls              *tls.Config // nil for plain HTTP
}

// connect returns a carrier to the endpoint. keep says whether it returns bodies.
func (e *endpoint) connect(keep bool) carrier {
	if e.send != nil {
		return sender(e.send)
	}
	return newConn(e, keep)
}

// carrier sends one request at a time and returns its answer.
type carrier interface {
	do(ctx context.Context, header, body []byte, deadline time.Time) (status int, answer []byte, err error)
	close()
}

// sender is a carrier that uses Target.Send.
type sender func(ctx context.Context, body []byte) (int, []byte, error)

func (s sender) do(ctx context.Context, _, body []byte, deadline time.Time) (int, []byte, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return s(ctx, body)
}

func (s sender) close() {}

// resolve checks a target and prepares its requests.
func (t *Target) resolve() (*endpoint, error) {
	if t.Send != nil {
		return &endpoint{send: t.Send}, nil
	}
	u, err := url.Parse(t.URL)
	if err != nil {
		return nil, fmt.Errorf("target %s: %w", t.Name, err)
	}
	scheme := "http"
	if t.TLS != nil {
		scheme = "https"
	}
	if u.Scheme != scheme || u.Host == "" {
		return nil, fmt.Errorf("target %s: URL is %q: it must start with %s://HOST", t.Name, t.URL, scheme)
	}
	e := &endpoint{network: "tcp", address: u.Host, method: t.Method, tls: t.TLS}
	if u.Port() == "" {
		e.address = net.JoinHostPort(u.Hostname(), scheme)
	}
	if t.Socket != "" {
		e.network, e.address = "unix", t.Socket
	}
	if e.method == "" {
		e.method = http.MethodPost
	}
	if e.prefix, err = t.prefix(e.method, u); err != nil {
		return nil, fmt.Errorf("target %s: %w", t.Name, err)
	}
	return e, nil
}

func (t *Target) prefix(method string, u *url.URL) ([]byte, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, u.RequestURI(), u.Host)
	header := t.Header.Clone()
	for _, own := range []string{"Host", "Content-Length", "Connection"} {
		header.Del(own)
	}
	if u.User != nil && header.Get("Authorization") == "" {
		password, _ := u.User.Password()
		r := http.Request{Header: http.Header{}}
		r.SetBasicAuth(u.User.Username(), password)
		fmt.Fprintf(&b, "Authorization: %s\r\n", r.Header.Get("Authorization"))
	}
	if err := header.Write(&b); err != nil {
		return nil, err
	}
	if strings.ContainsAny(method, " \r\n") {
		return nil, fmt.Errorf("method is %q: it must not contain blanks", method)
	}
	b.WriteString("Content-Length: ")
	return []byte(b.String()), nil
}

// lines are what request i has in its header beside the other requests', as they are
// written.
func (t *Target) lines(i int) []byte {
	if t.HeaderOf == nil {
		return nil
	}
	var b bytes.Buffer
	_ = t.HeaderOf(i).Write(&b) // A buffer takes everything.
	return b.Bytes()
}

// appendHead writes all of a request but its body. header is what it has beside other
// requests.
func (e *endpoint) appendHead(dst, header []byte, length int) []byte {
	dst = append(dst, e.prefix...)
	dst = strconv.AppendInt(dst, int64(length), 10)
	dst = append(dst, "\r\n"...)
	dst = append(dst, header...)
	return append(dst, "\r\n"...)
}
