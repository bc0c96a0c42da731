package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"
)

var (
	errTimeout    = errors.New("the function took longer than exec_timeout")
	errBrokenBody = errors.New("the request's body broke off")
)

// buffers are for copying bodies.
var buffers = sync.Pool{New: func() any {
	buffer := make([]byte, 32<<10)
	return &buffer
}}

// lateTime is how long a client may take to read the answer that its request
// took too long.
const lateTime = 5 * time.Second

// mostBuffered is how large a body may be where the program is to get all of
// it at once.
const mostBuffered = 64 << 20

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
		},
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			MaxIdleConnsPerHost: 32,
			// Servers close idle connections, after 2 s many of them; a request
			// sent at that moment fails.
			IdleConnTimeout: time.Second,
			// Bodies pass as they are.
			DisableCompression: true,
		},
		FlushInterval:  -1,
		BufferPool:     bufferPool{},
		ModifyResponse: addDuration,
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

// beganKey is the context's key of when a request came.
type beganKey struct{}

// ServeHTTP forwards one request.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	ctx := context.WithValue(r.Context(), beganKey{}, began)
	// What a connection is upgraded to is not a request that could time out.
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
	if u.BufferBody && r.ContentLength < 0 && !u.bufferBody(w, r) {
		return
	}
	// A program may answer while it still reads.
	_ = http.NewResponseController(w).EnableFullDuplex()
	u.proxy.ServeHTTP(w, r)
	if u.LogRequests {
		u.Log.Printf("%s %s - Duration: %.6fs", r.Method, r.URL.RequestURI(), time.Since(began).Seconds())
	}
}

// bufferBody reads a body of unknown length; it answers itself and returns
// false if it cannot.
func (u *Upstream) bufferBody(w http.ResponseWriter, r *http.Request) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBuffered))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		http.Error(w, fmt.Sprintf("http_buffer_req_body is set, and the body is larger than %d bytes", mostBuffered), http.StatusRequestEntityTooLarge)
		return false
	}
	if err != nil {
		http.Error(w, errBrokenBody.Error(), http.StatusBadRequest)
		return false
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	return true
}

func addDuration(response *http.Response) error {
	if began, ok := response.Request.Context().Value(beganKey{}).(time.Time); ok {
		response.Header.Set("X-Duration-Seconds", fmt.Sprintf("%f", time.Since(began).Seconds()))
	}
	return nil
}

// refuse answers for a program that did not.
func (u *Upstream) refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch cause := context.Cause(r.Context()); {
	case errors.Is(cause, errTimeout):
		u.Log.Printf("%s %s: %v", r.Method, r.URL.Path, errTimeout)
		w.Header().Set("Connection", "close")
		http.Error(w, errTimeout.Error(), http.StatusGatewayTimeout)
	case r.Context().Err() != nil:
		// Nobody waits for an answer.
		w.WriteHeader(http.StatusBadGateway)
	default:
		u.Log.Printf("%s %s: %v", r.Method, r.URL.Path, err)
		http.Error(w, "the function's process did not answer: "+err.Error(), http.StatusBadGateway)
	}
}
