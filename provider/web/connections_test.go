package web

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// boundServer serves connections in memory within bounds. A request for /slow waits for a value
// of slow.
type boundServer struct {
	*Connections
	pipes
	slow chan struct{}
}

func serveBound(t *testing.T, o ConnectionOptions) *boundServer {
	s := &boundServer{NewConnections(o), make(pipes), make(chan struct{})}
	server := NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-s.slow
		}
		io.WriteString(w, "fine")
	}), s.Connections)
	go server.Serve(s.Listen(s.pipes))
	t.Cleanup(func() {
		close(s.pipes)
		server.Close()
		synctest.Wait()
		if held := s.heads.Held(); held != 0 || len(s.open) != 0 || len(s.holders) != 0 {
			t.Errorf("at the end %d bytes are held, %d connections are open, of %d holders", held, len(s.open), len(s.holders))
		}
	})
	return s
}

// send sends text on a connection and returns once the server has read it or closed.
func send(c net.Conn, text string) {
	go io.WriteString(c, text)
	synctest.Wait()
}

// answer returns what comes within a moment, "closed" if the connection ends instead.
func answer(c net.Conn) string {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	text := make([]byte, 4<<10)
	n, err := c.Read(text)
	if err == io.EOF {
		return "closed"
	}
	if n == 0 {
		return "nothing"
	}
	return string(text[:n])
}

func (s *boundServer) wantClosed(t *testing.T, reason string, n int) {
	t.Helper()
	if got := testutil.ToFloat64(s.closed.WithLabelValues(reason)); int(got) != n {
		t.Errorf("%v were closed as %s, want %d", got, reason, n)
	}
}

const wholeHead = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// Idle connections make room for new ones, the longest idle one first; a connection with a
// request in progress stays.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveBound(t, ConnectionOptions{Max: 3, MaxHeads: 1 << 20})
		busy := s.dial()
		send(busy, strings.Replace(wholeHead, "/", "/slow", 1))
		var idle []net.Conn
		for range 5 {
			c := s.dial()
			send(c, wholeHead)
			if got := answer(c); !strings.Contains(got, "fine") {
				t.Fatalf("a new connection gets %q", got)
			}
			idle = append(idle, c)
			time.Sleep(time.Second)
		}
		for i, want := range []string{"closed", "closed", "closed", "nothing", "nothing"} {
			if got := answer(idle[i]); got != want {
				t.Errorf("idle connection %d: %s, want %s", i, got, want)
			}
		}
		close(s.slow)
		synctest.Wait()
		if got := answer(busy); !strings.Contains(got, "fine") {
			t.Errorf("the request in progress gets %q", got)
		}
		s.wantClosed(t, reasonIdle, 3)
		s.wantClosed(t, reasonRefused, 0)
	})
}

// Without an idle one the slowest head makes room. If all have requests, the new one is refused.
func TestSlowHeadsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveBound(t, ConnectionOptions{Max: 2, MaxHeads: 1 << 20})
		defer close(s.slow)
		slow := s.dial()
		send(slow, "GET / HT")
		time.Sleep(2 * slowHead)
		first := s.dial()
		send(first, strings.Replace(wholeHead, "/", "/slow", 1))
		second := s.dial()
		send(second, strings.Replace(wholeHead, "/", "/slow", 1))
		if got := answer(slow); got != "closed" {
			t.Errorf("the slow head: %s", got)
		}
		if got := answer(s.dial()); got != "closed" {
			t.Errorf("one too many: %s", got)
		}
		if got := answer(first) + answer(second); got != "nothingnothing" {
			t.Errorf("requests in progress: %s", got)
		}
		s.wantClosed(t, reasonSlow, 1)
		s.wantClosed(t, reasonRefused, 1)
	})
}

// One address may hold half of what heads may take. Its next one is closed, and what the first
// held is free when its head ends.
func TestUnfinishedHeadsAreBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveBound(t, ConnectionOptions{Max: 100, MaxHeads: 100 << 10})
		part := "GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 55<<10)
		first, second := s.dial(), s.dial()
		send(first, part)
		send(second, part)
		if got := answer(first) + " " + answer(second); got != "nothing closed" {
			t.Errorf("the first and the second: %s", got)
		}
		if held := s.heads.Held(); held < 55<<10 || held > 60<<10 {
			t.Errorf("%d bytes are held", held)
		}
		s.wantClosed(t, reasonHeads, 1)
		send(first, "\r\n\r\n")
		if got := answer(first); !strings.Contains(got, "fine") {
			t.Errorf("the first is answered %q", got)
		}
		third := s.dial()
		send(third, part)
		if got := answer(third); got != "nothing" {
			t.Errorf("the third: %s", got)
		}
		first.Close()
		third.Close()
	})
}

// The share of an address bites only when room is scarce: alone it gets four fifths of all
// connections, whether it is a gateway or not, and the rest is for others.
func TestShareOfConnections(t *testing.T) {
	s := NewConnections(ConnectionOptions{Max: 100, MaxHeads: 1})
	gateway, other := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.1")
	open := func(of netip.Addr, n int) (opened int) {
		for range n {
			ours, _ := net.Pipe()
			c := &connection{Conn: ours, bounds: s, holder: of}
			if !s.admit(time.Unix(0, 0), c) {
				break
			}
			c.begin()
			opened++
		}
		return opened
	}
	if n := open(gateway, 1000); n < 80 || n > 81 {
		t.Errorf("an address alone opens %d of 100", n)
	}
	if n := open(other, 1000); n < 15 {
		t.Errorf("another one opens %d", n)
	}
}

// Choosing whom to close looks at every connection, but seldom.
func TestEvictionIsSeldom(t *testing.T) {
	const all = 6400
	s := NewConnections(ConnectionOptions{Max: all, MaxHeads: 1})
	sweeps := 0
	for i := range 2 * all {
		ours, _ := net.Pipe()
		full := len(s.open) == all
		if !s.admit(time.Unix(int64(i), 0), &connection{Conn: ours, bounds: s, holder: netip.MustParseAddr(fmt.Sprintf("10.0.%d.%d", i%200, i/200))}) {
			t.Fatal("refused")
		}
		if full {
			sweeps++
		}
	}
	if sweeps > 2*evicted {
		t.Errorf("%d sweeps for %d connections too many", sweeps, all)
	}
}
