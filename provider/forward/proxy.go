package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/instance/duplex"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

// proxy answers r with the function's answer and returns the status.
func (c *call) proxy(w http.ResponseWriter, r *http.Request, path string, keep func(n int64) error) (code int) {
	c.source = duplex.NewBody(w, r, c.forwarder.options.BodyIdle)
	if c.source != nil {
		c.body = duplex.NewReplay(c.source, keep)
	}
	target, err := locate(path, r.URL.RawQuery)
	if err != nil {
		return c.writeError(w, r, path, err)
	}
	defer func() {
		switch p := recover(); {
		case p == nil:
			c.linger = c.ctx.Err() == nil && code != http.StatusSwitchingProtocols
		case p != http.ErrAbortHandler || c.ctx.Err() == nil:
			c.forwarder.options.Recorder.AddDrop(metrics.InstanceLost)
			panic(p)
		case c.late():
			panic(p) // The client is still there and must see that the answer is incomplete.
		default:
			code = hungUp // The client has left, so nobody needs to see the answer break off.
		}
	}()
	own := w.Header().Clone() // The proxy removes them when it passes an interim answer (1xx) on.
	(&httputil.ReverseProxy{
		Transport: roundTripper(c.send), BufferPool: buffers{}, ErrorLog: silent, FlushInterval: flushAfter,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = target
			forwarded(p.Out.Header, r)
			// net/http's server answers 100 Continue when it first reads the body.
			p.Out.Header.Del("Expect")
		},
		ModifyResponse: func(resp *http.Response) error {
			code = resp.StatusCode
			maps.Copy(w.Header(), own)
			// The function's headers replace those that the provider has set.
			for name := range resp.Header {
				delete(w.Header(), name)
			}
			return c.early(w, r, resp)
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			maps.Copy(w.Header(), own)
			code = c.writeError(w, r, path, answerable(err))
		},
	}).ServeHTTP(w, r)
	return code
}

// flushAfter is how long a part of an answer of known length, or its head, may wait for more
// before it is sent. Most such answers are complete by then and cost no flush. The proxy
// sends event streams and answers of unknown length on at once.
const flushAfter = 5 * time.Millisecond

// writeError answers a request for a path with an error.
func (c *call) writeError(w http.ResponseWriter, r *http.Request, path string, err error) int {
	c.closeAfter(w, r)
	return web.WriteErrorBelow(w, path, err)
}

// early prepares an answer that may have come before the request's end.
func (c *call) early(w http.ResponseWriter, r *http.Request, resp *http.Response) error {
	switch {
	case c.source.Ended():
	case resp.StatusCode == http.StatusSwitchingProtocols:
		// The rest of the request would be taken for the new protocol.
		return c.forwarder.drop(metrics.InstanceLost, errSwitchedEarly)
	default:
		resp.Body = progress{resp.Body, c.source}
	}
	c.closeAfter(w, r)
	return nil
}

// closeAfter ends the connection after the answer if the rest of the request is still to come: it
// would be taken for the next request.
func (c *call) closeAfter(w http.ResponseWriter, r *http.Request) {
	if !c.source.Ended() {
		web.CloseAfter(w, r)
	}
}

// progress is the body of an answer; reading from it counts as progress of the request.
type progress struct {
	io.ReadCloser
	request *duplex.Body
}

// Read implements io.Reader.
func (p progress) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	if n > 0 {
		p.request.Progress()
	}
	return n, err
}

// hungUp is the status of a request whose client left before the end of the answer, as
// in the provider's other routes.
const hungUp = 499

// answerable returns err, or an error with status 502 if err has no status of its own.
func answerable(err error) error {
	var known web.HTTPError
	if errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &web.Error{Status: http.StatusBadGateway, Text: fmt.Sprintf("the request could not be passed on: %v", err)}
}

// silent discards the proxy's log: the status or the broken-off answer says the same.
var silent = log.New(io.Discard, "", 0)

// forwarded sets the X-Forwarded headers. It keeps those that an earlier proxy has set.
func forwarded(h http.Header, r *http.Request) {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if given := r.Header[name]; given != nil {
			h[name] = given
		}
	}
	if h["X-Forwarded-Host"] == nil && r.Host != "" {
		h["X-Forwarded-Host"] = []string{r.Host}
	}
	if h["X-Forwarded-For"] == nil {
		h["X-Forwarded-For"] = []string{r.RemoteAddr}
	}
}

// roundTripper turns a function into an [http.RoundTripper].
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// buffers implements httputil.BufferPool with a pool of buffers of bufferSize bytes.
type buffers struct{}

const bufferSize = 32 << 10

var pool = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// Get implements httputil.BufferPool.
func (buffers) Get() []byte { return pool.Get().(*[bufferSize]byte)[:] }

// Put implements httputil.BufferPool.
func (buffers) Put(b []byte) { pool.Put((*[bufferSize]byte)(b)) }
