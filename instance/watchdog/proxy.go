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
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/instance/duplex"
)

var (
	errLateBody = errors.New("the client took longer than read_timeout to send the request")

	errSwitchedEarly = errors.New("it switched protocols before it had read the request's body")
)

// maxAnswerHead is the maximum size in bytes of the head of the program's answer. The provider, which gets a few
// fields more, takes [duplex.MaxAnswerHead].
const maxAnswerHead = 60 << 10

const (
	// maxBuffered is the maximum size in bytes of a body with BufferBody.
	maxBuffered = 64 << 20
	// maxBufferedByAll bounds these bodies together. The function's limit of memory does not hold for this process.
	maxBufferedByAll = 128 << 20
)

var errBuffersFull = errors.New("the bodies of other requests take all the memory for bodies; try again later")

// newProxy returns the proxy that forwards requests to the program.
func (u *Upstream) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u.URL)
			u.restore(r.Out.URL, r.In.URL)
			r.Out.Host = r.In.Host
			// ReverseProxy removes these headers, but they come from the gateway.
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if values := r.In.Header[name]; values != nil {
					r.Out.Header[name] = values
				}
			}
			// The server itself sends 100 Continue when the body is first read.
			r.Out.Header.Del("Expect")
		},
		Transport: &resender{Transport: http.Transport{
			DialContext:         dialProgram,
			MaxIdleConnsPerHost: 32,
			// Servers close idle connections, many after 2 s. A request sent at that
			// moment fails, so the proxy closes them earlier.
			IdleConnTimeout: time.Second,
			// The proxy does not change bodies.
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxAnswerHead,
		}},
		FlushInterval:  -1,
		BufferPool:     bufferPool{},
		ModifyResponse: describe,
		ErrorHandler:   u.refuse,
		ErrorLog:       u.Log.Logger(),
	}
}

// restore gives the program's URL the path and the query as they came: the proxy has dropped the
// parameters that it cannot parse, and net/url escapes what should have been escaped.
func (u *Upstream) restore(out, in *url.URL) {
	out.RawQuery, out.ForceQuery = in.RawQuery, in.ForceQuery
	if u.URL.RawQuery != "" {
		out.RawQuery = strings.TrimSuffix(u.URL.RawQuery+"&"+in.RawQuery, "&")
	}
	if in.RawPath != "" && in.RawPath != in.EscapedPath() && !strings.HasPrefix(in.RawPath, "//") {
		out.Opaque = strings.TrimSuffix(u.URL.EscapedPath(), "/") + in.RawPath
	}
}

// bufferPool lends buffers to the proxy.
type bufferPool struct{}

// Get implements httputil.BufferPool.
func (bufferPool) Get() []byte { return *buffers.Get().(*[]byte) }

// Put implements httputil.BufferPool.
func (bufferPool) Put(buffer []byte) { buffers.Put(&buffer) }

// dialProgram connects to the program for requests.
func dialProgram(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		return &programConn{Conn: duplex.Conn(conn), tcp: tcp}, nil
	}
	return duplex.Conn(conn), nil
}

// dial connects to the program.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	return dialer.DialContext(ctx, network, address)
}

// exchange is one request to the program.
type exchange struct {
	began time.Time
	// body is the body that the proxy reads, nil if there is none or it was buffered.
	body *duplex.Body
	// replay is the body that is sent, if it is kept to be sent again; release is called after it then.
	replay  *duplex.Replay
	release func()
}

// exchangeKey is the context key of an exchange.
type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange { return r.Context().Value(exchangeKey{}).(*exchange) }

// ServeHTTP forwards one request.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := &exchange{began: time.Now()}
	ctx := context.WithValue(r.Context(), exchangeKey{}, e)
	// An upgraded connection has no time limit.
	if limit := u.TimeLimit(r); limit > 0 && r.Header.Get("Upgrade") == "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errTimeout)
		defer cancel()
		// A client that does not read would block the proxy for ever.
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
	default:
		held := &heldBody{Reader: http.MaxBytesReader(w, r.Body, maxBuffered), all: &u.buffered}
		defer held.release()
		if !held.replace(w, r) {
			return
		}
	}
	u.answer(w, r, e)
	if u.LogRequests {
		u.Log.Printf("%s %s - Duration: %.6fs", r.Method, r.URL.RequestURI(), time.Since(e.began).Seconds())
	}
}

// answer forwards a request and passes the program's answer back.
func (u *Upstream) answer(w http.ResponseWriter, r *http.Request, e *exchange) {
	// The proxy waits for the read of the body, so also for a client that does not send.
	stop := context.AfterFunc(r.Context(), e.body.Stop)
	defer stop()
	linger := time.Duration(0) // stays 0 if the answer breaks off with a panic
	defer func() {
		if e.replay != nil {
			e.replay.End()
			e.release()
		}
		e.body.Finish(linger)
	}()
	u.proxy.ServeHTTP(w, r)
	linger = duplex.Linger
}

// heldBody reads a body of unknown length into memory. It counts its bytes among those of all requests until release.
type heldBody struct {
	io.Reader
	all  *atomic.Int64
	size int64
}

// Read implements io.Reader.
func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.size += int64(n)
	if b.all.Add(int64(n)) > maxBufferedByAll {
		return n, errBuffersFull
	}
	return n, err
}

// release ends the count.
func (b *heldBody) release() { b.all.Add(-b.size) }

// replace gives the request the body with its length. If it cannot, it answers the request and returns false.
func (b *heldBody) replace(w http.ResponseWriter, r *http.Request) bool {
	body, err := io.ReadAll(b)
	tooLarge := new(http.MaxBytesError)
	switch {
	case errors.As(err, &tooLarge):
		http.Error(w, fmt.Sprintf("the body is larger than %d bytes, the limit with http_buffer_req_body", maxBuffered),
			http.StatusRequestEntityTooLarge)
	case errors.Is(err, errBuffersFull):
		w.Header().Set("Connection", "close")
		Refuse(w, err.Error())
	case err != nil:
		http.Error(w, errBrokenBody.Error(), http.StatusBadRequest)
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	return err == nil
}

// describe adds headers to the program's answer.
func describe(response *http.Response) error {
	if err := duplex.CheckHead(response, 0); err != nil {
		return err
	}
	e := exchangeOf(response.Request)
	response.Header.Set("X-Duration-Seconds", fmt.Sprintf("%f", time.Since(e.began).Seconds()))
	switch {
	case e.body.Ended():
	case response.StatusCode == http.StatusSwitchingProtocols:
		return errSwitchedEarly
	default:
		// The rest of this request would come before the connection's next one.
		response.Header.Set("Connection", "close")
	}
	return nil
}

// refuse answers a request that the program did not answer.
func (u *Upstream) refuse(w http.ResponseWriter, r *http.Request, err error) {
	body := exchangeOf(r).body
	if !body.Ended() {
		w.Header().Set("Connection", "close")
	}
	switch cause := context.Cause(r.Context()); {
	case errors.Is(cause, errTimeout):
		u.Log.Printf("%s %s: %v", r.Method, r.URL.Path, errTimeout)
		// The connection's write deadline, lateTime, would also apply to later answers.
		w.Header().Set("Connection", "close")
		fail(w, errTimeout.Error(), http.StatusGatewayTimeout)
	case errors.Is(body.Err(), os.ErrDeadlineExceeded):
		fail(w, errLateBody.Error(), http.StatusRequestTimeout)
	case r.Context().Err() != nil:
		// Nobody waits for an answer.
		w.WriteHeader(http.StatusBadGateway)
	case errors.Is(err, syscall.ECONNREFUSED): // Only connecting fails so.
		go u.watchPort()
		u.Log.Printf("%s %s: %v", r.Method, r.URL.Path, err)
		Refuse(w, "the function's process does not listen at its port; it is replaced if it goes on so")
	default:
		u.Log.Printf("%s %s: %v", r.Method, r.URL.Path, err)
		fail(w, "the function's process did not answer: "+err.Error(), http.StatusBadGateway)
	}
}

// fail answers with a sentence and its Content-Length. With it the client has the complete
// answer before the rest of its request is read, which this process may not live to do.
func fail(w http.ResponseWriter, text string, code int) {
	text += "\n"
	header := w.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", fmt.Sprint(len(text)))
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}
