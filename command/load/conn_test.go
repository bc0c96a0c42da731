package load

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// script serves one connection after another on a listener: each handler reads
// what it wants and writes what it likes.
func script(t *testing.T, handlers ...func(*bufio.Reader, net.Conn)) *endpoint {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, h := range handlers {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h(bufio.NewReader(c), c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	target := Target{Name: "script", URL: "http://" + l.Addr().String()}
	e, err := target.resolve()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func readRequest(r *bufio.Reader) {
	if request, err := http.ReadRequest(r); err == nil {
		request.Body.Close()
	}
}

func soon() time.Time { return time.Now().Add(time.Minute) }

func TestConnReadsEveryForm(t *testing.T) {
	e := script(t, func(r *bufio.Reader, c net.Conn) {
		for _, answer := range []string{
			"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst",
			"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nsec\r\n3\r\nond\r\n0\r\n\r\n",
			"HTTP/1.1 204 No Content\r\n\r\n",
			"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nlast",
		} {
			readRequest(r)
			c.Write([]byte(answer))
		}
	})
	c := newConn(e, true)
	defer c.close()
	for i, want := range []struct {
		status int
		body   string
	}{{200, "first"}, {201, "second"}, {204, ""}, {200, "last"}} {
		status, body, err := c.do(t.Context(), nil, []byte("x"), soon())
		if err != nil || status != want.status || string(body) != want.body {
			t.Fatalf("answer %d: %d %q %v, want %d %q", i, status, body, err, want.status, want.body)
		}
	}
	if c.net != nil {
		t.Error("kept a connection that the server closes")
	}
}

// A request is sent once: when the connection breaks, it fails, and the next
// one gets a new connection.
func TestConnDoesNotSendTwice(t *testing.T) {
	requests := 0
	e := script(t,
		func(r *bufio.Reader, c net.Conn) {
			readRequest(r)
			requests++
			c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of"))
		},
		func(r *bufio.Reader, c net.Conn) {
			readRequest(r)
			requests++
			c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
		})
	c := newConn(e, false)
	defer c.close()
	if _, _, err := c.do(t.Context(), nil, nil, soon()); err == nil {
		t.Error("half an answer: no error")
	}
	if status, _, err := c.do(t.Context(), nil, nil, soon()); status != 200 || err != nil {
		t.Errorf("after a broken connection: %d %v", status, err)
	}
	if requests != 2 {
		t.Errorf("%d requests arrived, want 2", requests)
	}
}

// A server may close a connection that lies idle; that is no fault of the
// next request.
func TestConnNoticesClosedIdle(t *testing.T) {
	answer := func(r *bufio.Reader, c net.Conn) {
		readRequest(r)
		c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
	}
	e := script(t, answer, answer)
	c := newConn(e, false)
	defer c.close()
	for range 2 {
		if status, _, err := c.do(t.Context(), nil, nil, soon()); status != 200 || err != nil {
			t.Fatalf("%d %v", status, err)
		}
		for deadline := soon(); c.net != nil && !closedByPeer(c.net); {
			if time.Now().After(deadline) {
				t.Fatal("the server's close was not noticed")
			}
			time.Sleep(time.Millisecond)
		}
		c.used = time.Now().Add(-2 * idleCheck)
	}
}

func TestConnEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	e := script(t, func(r *bufio.Reader, c net.Conn) {
		readRequest(r)
		cancel()
		r.ReadByte() // until the client hangs up
	})
	c := newConn(e, false)
	defer c.close()
	if _, _, err := c.do(ctx, nil, nil, soon()); err == nil {
		t.Error("no error after the context ended")
	}
}

func TestPrefix(t *testing.T) {
	target := Target{
		URL:    "http://admin:secret@gateway:8080/function/mnist?x=%20y",
		Header: http.Header{"Content-Length": {"7"}, "Inference-Header-Content-Length": {"12"}},
	}
	e, err := target.resolve()
	if err != nil {
		t.Fatal(err)
	}
	want := "POST /function/mnist?x=%20y HTTP/1.1\r\nHost: gateway:8080\r\n" +
		"Authorization: Basic YWRtaW46c2VjcmV0\r\nInference-Header-Content-Length: 12\r\nContent-Length: 42\r\n\r\n"
	if got := string(e.appendHead(nil, nil, 42)); got != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	target.HeaderOf = func(i int) http.Header { return http.Header{"X-Call-Id": {strconv.Itoa(i)}} }
	want = strings.TrimSuffix(want, "\r\n") + "X-Call-Id: 7\r\n\r\n"
	if got := string(e.appendHead(nil, target.lines(7), 42)); got != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	if e.network != "tcp" || e.address != "gateway:8080" {
		t.Errorf("dials %s %s", e.network, e.address)
	}
}
