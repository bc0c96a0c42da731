package web

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/instance/duplex"
)

// pipes is a listener of connections in memory, on which synctest's clock has an effect.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.IPAddr{} }

// dial returns the client's end of a new connection.
func (p pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p <- theirs
	return ours
}

// fields returns the end of a head with n fields.
func fields(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, "X%d: y\r\n", i)
	}
	return out.String() + "\r\n"
}

// A connection ends that sends no whole head, or no request for long, and a large head is
// refused, also one of many small fields.
func TestServerBoundsConnections(t *testing.T) {
	const whole = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, c := range []struct {
		name, sent, answer string
		after              time.Duration
	}{
		{"nothing", "", "", headTime},
		{"half a head", "GET / HTTP/1.1\r\nHost", "", headTime},
		{"an idle one", whole, "fine", idleTime},
		{"half a second head", whole + "GET /", "fine", headTime},
		{"a large head", "GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", MaxHead+8<<10), " 431 ", 0},
		{"as many fields as are allowed", "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + fields(duplex.MaxFields-1), "fine", 0},
		{"many fields", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n" + fields(duplex.MaxFields), " 431 ", 0},
		{"many fields of one name", "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("a:\r\n", duplex.MaxFields+1) + "\r\n", " 431 ", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bounds := NewConnections(ConnectionOptions{Max: 16, MaxHeads: 1 << 20})
				server := NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "fine") }), bounds)
				listener := make(pipes)
				go server.Serve(bounds.Listen(listener))
				conn, began := listener.dial(), time.Now()
				go fmt.Fprint(conn, c.sent)
				answer, _ := io.ReadAll(conn)
				// After a refusal net/http waits for the client to read it.
				if took := time.Since(began); took < c.after || took > c.after+time.Second || !strings.Contains(string(answer), c.answer) {
					t.Errorf("closed after %v, want %v; answer %q", took, c.after, answer)
				}
				conn.Close()
				close(listener)
				server.Close()
			})
		})
	}
}
