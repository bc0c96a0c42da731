package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"sync"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// proxy answers r with what the function answers.
func (c *call) proxy(w http.ResponseWriter, r *http.Request, path string) (code int) {
	target, err := locate(path, r.URL.RawQuery)
	if err != nil {
		return provider.WriteError(w, err)
	}
	if r.ContentLength != 0 {
		c.body = newReplay(r.Body)
		// Or net/http would hold an answer back until the request has come in
		// whole. It fails where it is not needed.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	defer func() {
		switch p := recover(); {
		case p == nil:
		case p == http.ErrAbortHandler && c.ctx.Err() != nil:
			code = hungUp // There is nobody to break off for.
		default:
			c.forwarder.options.Recorder.AddDrop(metrics.InstanceLost)
			panic(p)
		}
	}()
	(&httputil.ReverseProxy{
		Transport: roundTripper(c.send), BufferPool: buffers{}, ErrorLog: silent,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = target
			forwarded(p.Out.Header, r)
		},
		ModifyResponse: func(resp *http.Response) error {
			code = resp.StatusCode
			// What the function says of itself counts, not what the provider
			// has put there already.
			for name := range resp.Header {
				delete(w.Header(), name)
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			code = provider.WriteError(w, told(err))
		},
	}).ServeHTTP(w, r)
	return code
}

// hungUp is the status of a request whose client left before the answer's end,
// as in the provider's other routes.
const hungUp = 499

// told is err, or what stands for one that only net/http knows.
func told(err error) error {
	var known provider.HTTPError
	if errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &Error{status: http.StatusBadGateway, message: fmt.Sprintf("the request could not be passed on: %v", err)}
}

// silent takes what the proxy would log: the status says it, or the broken-off
// answer.
var silent = log.New(io.Discard, "", 0)

// forwarded tells the function whose request it is, as far as no proxy before
// this one has said so.
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

// roundTripper is a function as an [http.RoundTripper].
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// buffers are what answers are copied through.
type buffers struct{}

const bufferSize = 32 << 10

var pool = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// Get implements httputil.BufferPool.
func (buffers) Get() []byte { return pool.Get().(*[bufferSize]byte)[:] }

// Put implements httputil.BufferPool.
func (buffers) Put(b []byte) { pool.Put((*[bufferSize]byte)(b)) }
