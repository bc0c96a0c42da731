package peer

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/web"
)

const mib = 1 << 20

// handing returns a replica whose requests may hold little, and its server.
func handing(t *testing.T, o *answering) (*web.BodyReader, *httptest.Server) {
	bodies := web.NewBodyReader(4*mib, time.Minute, 5*mib)
	g := New(Options{Membership: seat{&place{}, "r"}, Bodies: bodies, Logger: zerolog.Nop()})
	g.Share(function(), o)
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	return bodies, server
}

// hand hands on a request with a body of n bytes.
func hand(t *testing.T, server *httptest.Server, n int) (status int, text string) {
	t.Helper()
	buffers, length := frame.EncodeRequests([]frame.Request{{Method: "POST", Path: "/", Body: []byte(strings.Repeat("x", n))}})
	r, err := http.NewRequest("POST", server.URL+invokePath+name, &buffers)
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = length
	answer, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// A replica that shuts down answers the requests that others have handed on to it, and takes
// no more of them: the others execute these.
func TestHandedRequestsAreInFlight(t *testing.T) {
	o := &answering{id: "r", hold: make(chan struct{})}
	gate := web.NewGate()
	g := New(Options{Membership: seat{&place{}, "r"}, InFlight: gate, Logger: zerolog.Nop()})
	g.Share(function(), o)
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	answered := make(chan int, 1)
	go func() {
		status, _ := hand(t, server, 1)
		answered <- status
	}()
	until(t, "it is there", func() bool { return o.requests.Load() == 1 })
	empty := gate.Close()
	if gate.Inside() != 1 {
		t.Errorf("%d requests are in flight, not the one that was handed on", gate.Inside())
	}
	if status, text := hand(t, server, 1); status != http.StatusServiceUnavailable || !strings.Contains(text, "shutting down") || o.requests.Load() != 1 {
		t.Errorf("another one: %d %q", status, text)
	}
	close(o.hold)
	<-empty
	if status := <-answered; status != http.StatusOK {
		t.Errorf("the one in flight gets %d", status)
	}
}

// A request that is handed on holds what has come of it, not what it announces, until it is
// answered, and its size is bounded.
func TestHandedRequestsHoldWhatHasCome(t *testing.T) {
	o := &answering{id: "r", hold: make(chan struct{})}
	bodies, server := handing(t, o)
	for range 8 {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST %s%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\nFIB1", invokePath, name, 4*mib)
	}
	until(t, "what has come is held", func() bool { return bodies.Held() >= 8*4 })
	if held := bodies.Held(); held > mib {
		t.Errorf("requests that announce 32 MiB and send 4 bytes each hold %d bytes", held)
	}
	answered := make(chan int)
	go func() {
		status, _ := hand(t, server, 3*mib)
		answered <- status
	}()
	until(t, "it is there", func() bool { return o.requests.Load() == 1 })
	if held := bodies.Held(); held < 3*mib {
		t.Errorf("%d bytes are held for a request of 3 MiB", held)
	}
	if status, text := hand(t, server, 3*mib); status != http.StatusTooManyRequests || !strings.Contains(text, "memory") {
		t.Errorf("another one that does not fit: %d %q", status, text)
	}
	if status, _ := hand(t, server, 4*mib+web.MaxHead+1); status != http.StatusRequestEntityTooLarge {
		t.Errorf("one that is too large: %d", status)
	}
	close(o.hold)
	if status := <-answered; status != http.StatusOK {
		t.Errorf("the one that fits: %d", status)
	}
	server.CloseClientConnections()
	until(t, "nothing is held", func() bool { return bodies.Held() == 0 })
}

// The owner is told how long a request has waited, also for a replica that has died with it.
func TestWhatARequestWaitedTravels(t *testing.T) {
	where, all := several(t, 3)
	ranking := Rank(name, where.members())
	by := func(id string) *one {
		for _, o := range all {
			if o.own.id == id {
				return o
			}
		}
		return nil
	}
	first, second, asker := by(ranking[0].ID), by(ranking[1].ID), by(ranking[2].ID)
	ask := func(waited time.Duration) error {
		_, err := asker.shared.Invoke(t.Context(), &frame.Request{Method: "POST", Path: "/", Header: http.Header{}, Waited: waited})
		return err
	}
	if err := ask(3 * time.Second); err != nil || first.own.waited.Load() != int64(3*time.Second) {
		t.Errorf("the owner was told of %v, want 3 s; %v", time.Duration(first.own.waited.Load()), err)
	}
	first.own.hold = make(chan struct{})
	failed := make(chan error)
	go func() { failed <- ask(3 * time.Second) }()
	until(t, "the request is there", func() bool { return first.own.requests.Load() == 2 })
	first.server.CloseClientConnections()
	if err := <-failed; err != nil || second.own.waited.Load() <= int64(3*time.Second) {
		t.Errorf("the next one was told of %v, want more than 3 s; %v", time.Duration(second.own.waited.Load()), err)
	}
}
