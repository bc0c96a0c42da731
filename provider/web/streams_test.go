package web

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// overHTTP2 returns a client that keeps one connection of HTTP/2 to the server.
func (s *boundServer) overHTTP2(t *testing.T) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols), DialContext: func(context.Context, string, string) (net.Conn, error) {
		return s.dial(), nil
	}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Streams in progress keep their connection, take memory for all, and are refused beyond a share.
func TestStreamsAreBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveBound(t, ConnectionOptions{Max: 1, MaxHeads: 4 * streamCost, AnswerTimeout: time.Minute})
		client := s.overHTTP2(t)
		var statuses [2]atomic.Int64
		var asking sync.WaitGroup
		first, err := client.Get("http://x/") // The others share its connection.
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, first.Body)
		first.Body.Close()
		synctest.Wait()
		for range 4 {
			asking.Go(func() {
				resp, err := client.Get("http://x/slow")
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				_, _ = io.Copy(io.Discard, resp.Body)
				statuses[min(1, resp.StatusCode/100-2)].Add(1)
			})
		}
		synctest.Wait()
		if held := s.heads.Held(); held != 3*streamCost {
			t.Errorf("%d bytes are held by streams, want three times %d", held, streamCost)
		}
		if got := answer(s.dial()); got != "closed" {
			t.Errorf("a connection that needs the place of one with streams is told %q", got)
		}
		close(s.slow)
		asking.Wait()
		synctest.Wait()
		if fine, refused := statuses[0].Load(), statuses[1].Load(); fine != 3 || refused != 1 {
			t.Errorf("%d streams were served and %d refused, want 3 and 1", fine, refused)
		}
		next := s.dial()
		defer next.Close()
		if send(next, wholeHead); answer(next) == "closed" {
			t.Error("an idle connection of HTTP/2 makes no room")
		}
		s.wantClosed(t, reasonIdle, 1)
	})
}

// A handler that begins after its client has reset the stream leaves its connection idle.
func TestResetStreamsLeaveTheirConnectionIdle(t *testing.T) {
	s := NewConnections(ConnectionOptions{Max: 1, MaxHeads: 1 << 20})
	c := &connection{bounds: s}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	r, err := http.NewRequestWithContext(over, http.MethodGet, "http://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.serveStream(nil, r, c, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if c.state.Load() != connBusy {
			t.Error("the connection is not busy with the stream")
		}
	}))
	if c.state.Load() != connQuiet {
		t.Error("the connection is busy with no stream")
	}
}

// deadlines counts the deadlines that net/http gets. Each costs a message to the goroutine of the connection.
type deadlines struct {
	http.ResponseWriter
	read []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.read = append(d.read, t)
	return nil
}
func (d *deadlines) SetWriteDeadline(time.Time) error { return nil }

// Deadlines for reading a stream take effect when they are over, and not before.
func TestDeadlinesOfStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below := &deadlines{}
		s := newStalling(below, nil, time.Hour)
		set := func(at time.Time) {
			if err := s.SetReadDeadline(at); err != nil {
				t.Error(err)
			}
		}
		set(time.Time{})
		for range 3 {
			set(time.Now().Add(time.Minute))
			time.Sleep(time.Minute / 2)
		}
		set(time.Time{})
		time.Sleep(time.Hour)
		if len(below.read) != 0 {
			t.Errorf("the stream has got the deadlines %v", below.read)
		}
		set(time.Now().Add(time.Minute))
		time.Sleep(time.Minute)
		synctest.Wait()
		if set(time.Unix(1, 0)); len(below.read) != 2 || below.read[0].After(time.Now()) {
			t.Errorf("the stream has got the deadlines %v, want two in the past", below.read)
		}
		set(time.Now().Add(time.Minute))
		s.end()
		time.Sleep(time.Hour)
		synctest.Wait()
		if err := s.SetReadDeadline(time.Unix(1, 0)); err == nil || len(below.read) != 2 {
			t.Errorf("a stream that has ended has got the deadlines %v", below.read)
		}
	})
}
