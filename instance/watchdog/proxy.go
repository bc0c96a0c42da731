package watchdog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"time"

	"github.com/faas-infer/faas-infer/instance/duplex"
)

var (
	errLateBody = errors.New("the request took longer to come than read_timeout")

	errSwitchedEarly = errors.New("it switched protocols before it had read the request's body")
)

// maxBuffered is how large a body may be where the program is to get all of
// it at once.
const maxBuffered = 64 << 20

// newProxy makes what forwards requests to the program.
func (u *Upstream) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u.URL)
			r.Out.Host = r.In.Host
			// They are the gateway's, and true.
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if values := r.In.Header[name]; values != nil {
					r.Out.Header[name] = values
				}
			}
			// A client that waits before it sends is told to go on when its body
			// is first read.
			r.Out.Header.Del("Expect")
		},
		Transport: &http.Transport{
			DialContext:         dial,
			MaxIdleConnsPerHost: 32,
			// Servers close idle connections, after 2 s many of them; a request
			// sent at that moment fails.
			IdleConnTimeout: time.Second,
			// Bodies pass as they are.
			DisableCompression: true,
		},
		FlushInterval:  -1,
		BufferPool:     bufferPool{},
		ModifyResponse: describe,
		ErrorHandler:   u.refuse,
		ErrorLog:       u.Log.Logger(),
	}
}

// bufferPool hands them to the proxy.
type bufferPool struct{}

// Get is an httputil.BufferPool's.
func (bufferPool) Get() []byte { return *buffers.Get().(*[]byte) }

// Put is an httputil.BufferPool's.
func (bufferPool) Put(buffer []byte) { buffers.Put(&buffer) }

// dial connects to the program.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return duplex.Conn(conn), nil
}

// exchange is one request that the program answers.
type exchange struct {
	began time.Time
	// body is what the proxy reads, unless it has been read before.
	body *duplex.Body
}

// exchangeKey is its context's key.
type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange { return r.Context().Value(exchangeKey{}).(*exchange) }

// ServeHTTP forwards one request.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := &exchange{began: time.Now()}
	ctx := context.WithValue(r.Context(), exchangeKey{}, e)
	// An upgraded connection is not a request that could time out.
	if limit := u.TimeLimit(r); limit > 0 && r.Header.Get("Upgrade") == "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errTimeout)
		defer cancel()
		// A client that does not read would keep the proxy for ever.
		stop := context.AfterFunc(ctx, func() {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(lateTime))
		})
		defer stop()
	}
	r = r.WithContext(ctx)
	switch {
	case !u.BufferBody || r.ContentLength >= 0:
		if e.body = duplex.NewBody(w, r, 0); e.body != nil {
			r.Body = e.body
		}
	case !u.bufferBody(w, r):
		return
	}
	u.answer(w, r, e)
	if u.LogRequests {
		u.Log.Printf("%s %s - Duration: %.6fs", r.Method, r.URL.RequestURI(), time.Since(e.began).Seconds())
	}
}

// answer has the program answer.
func (u *Upstream) answer(w http.ResponseWriter, r *http.Request, e *exchange) {
	// The proxy waits for who reads the body, and so for a client that does not
	// send.
	stop := context.AfterFunc(r.Context(), e.body.Stop)
	defer stop()
	linger := time.Duration(0) // where the answer breaks off
	defer func() { e.body.Finish(linger) }()
	u.proxy.ServeHTTP(w, r)
	linger = duplex.Linger
}

// bufferBody reads a body of unknown length; it answers itself and returns
// false if it cannot.
func (u *Upstream) bufferBody(w http.ResponseWriter, r *http.Request) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBuffered))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		http.Error(w, fmt.Sprintf("http_buffer_req_body is set, and the body is larger than %d bytes", maxBuffered), http.StatusRequestEntityTooLarge)
		return false
	}
	if err != nil {
		http.Error(w, errBrokenBody.Error(), http.StatusBadRequest)
		return false
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	return true
}

// describe adds to the header of an answer.
func describe(response *http.Response) error {
	e := exchangeOf(response.Request)
	response.Header.Set("X-Duration-Seconds", fmt.Sprintf("%f", time.Since(e.began).Seconds()))
	switch {
	case e.body.Ended():
	case response.StatusCode == http.StatusSwitchingProtocols:
		return errSwitchedEarly
	default:
		// The connection continues with the rest of this request.
		response.Header.Set("Connection", "close")
	}
	return nil
}

// refuse answers for a program that did not.
func (u *Upstream) refuse(w http.ResponseWriter, r *http.Request, err error) {
	body := exchangeOf(r).body
	if !body.Ended() {
		w.Header().Set("Connection", "close")
	}
	switch cause := context.Cause(r.Context()); {
	case errors.Is(cause, errTimeout):
		u.Log.Printf("%s %s: %v", r.Method, r.URL.Path, errTimeout)
		// The rest would have to be written within lateTime, too.
		w.Header().Set("Connection", "close")
		fail(w, errTimeout.Error(), http.StatusGatewayTimeout)
	case errors.Is(body.Err(), os.ErrDeadlineExceeded):
		fail(w, errLateBody.Error(), http.StatusRequestTimeout)
	case r.Context().Err() != nil:
		// Nobody waits for an answer.
		w.WriteHeader(http.StatusBadGateway)
	default:
		u.Log.Printf("%s %s: %v", r.Method, r.URL.Path, err)
		fail(w, "the function's process did not answer: "+err.Error(), http.StatusBadGateway)
	}
}

// fail answers with a sentence. Its length is told, so that the answer is whole
// before the rest of the request has been taken, which may be when this process
// is about to end.
func fail(w http.ResponseWriter, text string, code int) {
	text += "\n"
	header := w.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", fmt.Sprint(len(text)))
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}
