package provider

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/web"
)

// chunked returns a request with a body of unknown length. The stock gateway sends all
// requests like this.
func chunked(body io.Reader) *http.Request {
	r := httptest.NewRequest("POST", "/function/mnist", io.NopCloser(body))
	r.ContentLength = -1
	return r
}

// send sends a request through the handler.
func (r *rig) send(request *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, request)
	return w
}

// firstBuffer is the size of a body's first buffer in package web.
const firstBuffer = 16 << 10

func TestBodiesOfEveryLength(t *testing.T) {
	r := invoker(t, echo, nil)
	text := make([]byte, 1<<21)
	for i := range text {
		text[i] = byte(i*31 + i>>8)
	}
	for _, n := range []int{0, 1, 100, 1023, 1024, 4096, 4097, firstBuffer - 1, firstBuffer, firstBuffer + 1, 4*firstBuffer - 1, 4 * firstBuffer,
		4*firstBuffer + 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 1 << 21} {
		for name, from := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "halves": iotest.HalfReader, "end with data": iotest.DataErrReader,
		} {
			request := chunked(from(bytes.NewReader(text[:n])))
			for range 2 {
				if w := r.send(request); w.Code != 200 || !bytes.Equal(w.Body.Bytes(), text[:n]) {
					t.Errorf("%d bytes, %s, length %d: %d, %d bytes came back", n, name, request.ContentLength, w.Code, w.Body.Len())
				}
				request = chunked(from(bytes.NewReader(text[:n])))
				request.ContentLength = int64(n)
			}
		}
	}
	if held := r.bodies.Held(); held != 0 {
		t.Errorf("%d bytes are still counted as held", held)
	}
}

// A small body must not wait in a large buffer.
func TestSmallChunkedBodiesTakeLittle(t *testing.T) {
	var held int64
	var r *rig
	r = invoker(t, func(ctx context.Context, req *frame.Request) (*frame.Response, error) {
		held = r.bodies.Held()
		return echo(ctx, req)
	}, nil)
	r.send(chunked(strings.NewReader("")))
	head := held
	for size, most := range map[int]int64{100: 100, 4000: 4000, 5000: firstBuffer} {
		if r.send(chunked(strings.NewReader(strings.Repeat("x", size)))); held != head+most {
			t.Errorf("a body of %d bytes counts for %d, want %d", size, held-head, most)
		}
	}
	large := chunked(strings.NewReader(""))
	large.Header.Set("X-Large", strings.Repeat("x", 50<<10))
	if r.send(large); held < head+50<<10 {
		t.Errorf("a request with a header of 50 KiB counts for %d", held)
	}
}

// The bytes held for all functions are bounded, and every request gives its bytes back,
// whatever its outcome.
func TestHeldBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan error)
		r := invoker(t, func(ctx context.Context, req *frame.Request) (*frame.Response, error) {
			if err := <-release; err != nil {
				return nil, err
			}
			return echo(ctx, req)
		}, func(o *Options) { o.Bodies = web.NewBodyReader(800<<10, DefaultBodyTimeout, 1000<<10) })
		body := strings.Repeat("x", 600<<10)
		for _, outcome := range []error{nil, errors.New("lost")} {
			answered := make(chan int)
			go func() { answered <- r.do("POST", "/function/mnist.team-a", body).Code }()
			synctest.Wait()
			for address, status := range map[string]int{"192.0.2.1:1": 429, "192.0.2.2:1": 503} { // The same client, another one.
				for _, length := range []int64{int64(len(body)), -1} {
					request := chunked(strings.NewReader(body))
					request.RemoteAddr, request.ContentLength = address, length
					w := r.send(request)
					wantSentence(t, w, status, "memory")
					if w.Header().Get("Retry-After") != "1" {
						t.Error("no Retry-After")
					}
				}
			}
			release <- outcome
			if code := <-answered; (code == 200) != (outcome == nil) {
				t.Errorf("the first one got %d", code)
			}
			if held := r.bodies.Held(); held != 0 {
				t.Errorf("%d bytes are still counted as held", held)
			}
		}
		r.do("POST", "/function/mnist", strings.Repeat("x", 800<<10+1))
		r.send(chunked(strings.NewReader(strings.Repeat("x", 800<<10+1))))
		r.send(chunked(iotest.ErrReader(errors.New("broken"))))
		short := chunked(strings.NewReader("123"))
		short.ContentLength = 5
		r.send(short)
		if held := r.bodies.Held(); held != 0 {
			t.Errorf("%d bytes are held for requests that were refused", held)
		}
	})
}

// The server does not wait for ever for a client that does not send its body, and
// shutdown does not wait for it at all.
func TestSlowClients(t *testing.T) {
	r := invoker(t, echo, func(o *Options) { o.Bodies = web.NewBodyReader(DefaultMaxBody, 100*time.Millisecond, DefaultMaxHeld) })
	server := httptest.NewServer(r.Handler())
	defer server.Close()
	for _, head := range []string{
		"POST /function/mnist HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nx",
		"POST /function/mnist HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
		"POST /system/functions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nx",
	} {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, head); err != nil {
			t.Fatal(err)
		}
		if answer := readAll(t, c); !strings.HasPrefix(answer, "HTTP/1.1 408 ") || !strings.Contains(answer, "in time") {
			t.Errorf("%q is answered %q", head, answer)
		}
		c.Close()
	}
	// Nor is a body that nobody reads.
	for _, line := range []string{"GET /system/info", "POST /system/nothing", "POST /nothing", "POST /api/v1/query", "POST /function/absent", "POST /async-function/mnist"} {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, line+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nx"); err != nil {
			t.Fatal(err)
		}
		if answer := readAll(t, c); !strings.HasPrefix(answer, "HTTP/1.1 ") {
			t.Errorf("%s with an endless body is answered %q", line, answer)
		}
		c.Close()
	}
	// The limit is the body's, not the answer's, and not the next request's.
	slow := invoker(t, func(ctx context.Context, req *frame.Request) (*frame.Response, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
			return echo(ctx, req)
		}
	}, func(o *Options) { o.Bodies = web.NewBodyReader(DefaultMaxBody, 20*time.Millisecond, DefaultMaxHeld) })
	patient := httptest.NewServer(slow.Handler())
	defer patient.Close()
	for range 2 {
		response, err := patient.Client().Post(patient.URL+"/function/mnist", "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		if text := readAll(t, response.Body); response.StatusCode != 200 || text != "x" {
			t.Errorf("answer %d %q", response.StatusCode, text)
		}
		response.Body.Close()
	}
}

func TestShutdownDoesNotWaitForBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := invoker(t, echo, nil)
		from, to := io.Pipe()
		answered := make(chan *httptest.ResponseRecorder)
		go func() { answered <- r.send(chunked(from)) }()
		if _, err := to.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		to.Close()
		wantSentence(t, <-answered, 503, "shutting down")
		if held := r.bodies.Held(); held != 0 {
			t.Errorf("%d bytes are still counted as held", held)
		}
	})
}
