package provider

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openfaas/faas-provider/logs"
	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/instance/duplex"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/web"
)

// serveLimited serves a rig as the program does, with a limit on clients that do not read.
func serveLimited(t *testing.T, r *rig, limit time.Duration) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.Config = web.NewServer(r.Handler(), web.NewConnections(web.ConnectionOptions{Max: 100, MaxHeads: 1 << 20}))
	server.Listener = duplex.LimitStalls(server.Listener, limit)
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return server
}

// large answers with a body of n bytes.
func large(n int) dispatcherFunc {
	return func(context.Context, *frame.Request) (*frame.Response, error) {
		return &frame.Response{Status: 200, Header: http.Header{}, Body: make([]byte, n)}, nil
	}
}

// A client that never reads its answer is cut off, and its memory is free again.
func TestUnreadAnswersAreCutOff(t *testing.T) {
	const size = 32 << 20
	r := invoker(t, large(size), nil)
	server := serveLimited(t, r, 300*time.Millisecond)
	conn := dialFrom(t, server, "127.0.0.1")
	if _, err := io.WriteString(conn, "GET /function/mnist HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the answer counts as held", func() bool { return r.bodies.Held() >= size })
	eventually(t, "nothing is held", func() bool { return r.bodies.Held() == 0 })
	if n, _ := io.Copy(io.Discard, conn); n >= size {
		t.Errorf("%d bytes came, the whole answer", n)
	}
}

// The answers that a client does not read take no more than its share.
func TestUnreadAnswersLeaveRoom(t *testing.T) {
	const mib = 1 << 20
	r := invoker(t, large(16*mib), func(o *Options) { o.Bodies = web.NewBodyReader(DefaultMaxBody, DefaultBodyTimeout, 128*mib) })
	r.controller.dispatcher = dispatcherFunc(echo)
	r.deploy(t, func(d *types.FunctionDeployment) { d.Service = "other" })
	server := serveLimited(t, r, time.Minute)
	for i := range 20 {
		before := r.bodies.Held()
		conn := dialFrom(t, server, "127.0.0.2")
		if _, err := io.WriteString(conn, "GET /function/mnist HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusTooManyRequests && i >= 4 {
			break
		}
		if resp.StatusCode != 200 || r.bodies.Held() < before+16*mib || i > 6 {
			t.Fatalf("request %d: %s, %d bytes are held", i, resp.Status, r.bodies.Held())
		}
	}
	resp, err := clientFrom(t, "127.0.0.3").Post(server.URL+"/function/other", "text/plain", strings.NewReader(strings.Repeat("x", 8*mib)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != 8*mib {
		t.Errorf("another client gets %s, %d bytes, %v", resp.Status, n, err)
	}
}

// ticking is a forwarder whose answer has one line a minute.
type ticking struct{ dispatcherFunc }

func (ticking) Forward(w http.ResponseWriter, r *http.Request, _ string, _ time.Duration, _ func(int64) error) int {
	for i := range 10 {
		fmt.Fprintln(w, i)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(time.Minute):
		case <-r.Context().Done():
			return web.StatusHungUp
		}
	}
	return 200
}

// onePipe is a listener of one connection in memory.
type onePipe struct{ conns chan net.Conn }

func (l onePipe) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l onePipe) Close() error   { return nil }
func (l onePipe) Addr() net.Addr { return &net.TCPAddr{} }

// An answer that streams, with pauses longer than any limit, is not cut off, nor are logs
// that a client follows.
func TestStreamsOfMinutesAreWhole(t *testing.T) {
	for _, target := range []string{"/function/mnist", "/system/logs?name=mnist&follow=1"} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeLogs{more: make(chan logs.Message, 10)}
			r := newRig(t, func(o *Options) { o.Logs = f })
			r.controller.dispatcher = ticking{}
			r.deploy(t, nil)
			for i := range cap(f.more) {
				time.AfterFunc(time.Duration(i)*time.Minute, func() { f.more <- message(fmt.Sprint(i)) })
			}
			server := web.NewServer(r.Handler(), web.NewConnections(web.ConnectionOptions{Max: 100, MaxHeads: 1 << 20}))
			listener := onePipe{make(chan net.Conn)}
			go server.Serve(duplex.LimitStalls(listener, 30*time.Second))
			ours, theirs := net.Pipe()
			listener.conns <- theirs
			began := time.Now()
			if _, err := fmt.Fprintf(ours, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", target); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(ours), nil)
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(resp.Body)
			for i := range 10 {
				if !lines.Scan() || time.Since(began) != time.Duration(i)*time.Minute {
					t.Errorf("%s: line %d after %v: %v", target, i, time.Since(began), lines.Err())
				}
			}
			ours.Close()
			close(listener.conns)
			server.Close()
		})
	}
}
