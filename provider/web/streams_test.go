package web

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/faas-infer/faas-infer/instance/duplex"
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

// streamClient is a client of HTTP/2 that sends what it likes.
type streamClient struct {
	*http2.Framer
	t *testing.T
	// answers are the server's frames about streams and the connection's end.
	answers chan string
}

func newStreamClient(t *testing.T, conn net.Conn) *streamClient {
	c := &streamClient{http2.NewFramer(conn, conn), t, make(chan string, 100)}
	c.ReadMetaHeaders = hpack.NewDecoder(4<<10, nil)
	go func() {
		defer close(c.answers)
		for {
			f, err := c.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.MetaHeadersFrame:
				c.answers <- "HEADERS " + f.PseudoValue("status")
			case *http2.DataFrame:
				c.answers <- fmt.Sprintf("DATA %q %v", f.Data(), f.StreamEnded())
			case *http2.RSTStreamFrame:
				c.answers <- "RST_STREAM " + f.ErrCode.String()
			case *http2.GoAwayFrame:
				c.answers <- "GOAWAY"
			}
		}
	}()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return c
}

// post sends a request with a body of n bytes that goes on.
func (c *streamClient) post(stream uint32, n int) {
	var head bytes.Buffer
	coder := hpack.NewEncoder(&head)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "x"}, {":path", "/"}} {
		_ = coder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // It is written to memory.
	}
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head.Bytes(), EndHeaders: true}); err != nil {
		c.t.Fatal(err)
	}
	for sent := 0; sent < n; sent += 10 << 10 {
		if err := c.WriteData(stream, false, make([]byte, 10<<10)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// want fails unless these frames come next.
func (c *streamClient) want(frames ...string) {
	c.t.Helper()
	for _, want := range frames {
		if got := <-c.answers; got != want {
			c.t.Fatalf("the server sends %s, want %s", got, want)
		}
	}
}

// An answer before the end of its request's body is whole before the stream ends, and the connection goes on: curl loses
// answers that come together with RST_STREAM or GOAWAY.
func TestAnswersBeforeTheirRequestsEnd(t *testing.T) {
	for name, leave := range map[string]func(w http.ResponseWriter, r *http.Request){
		"closed": CloseAfter, "rest": NewBodyReader(1, time.Minute, 1).LimitRest,
	} {
		synctest.Test(t, func(t *testing.T) {
			bounds := NewConnections(ConnectionOptions{Max: 10, MaxHeads: 1 << 20, AnswerTimeout: time.Minute})
			server := NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				leave(w, r)
				WriteError(w, Refuse(http.StatusRequestEntityTooLarge, "no"))
			}), bounds)
			conns := make(pipes)
			go server.Serve(bounds.Listen(conns))
			conn := conns.dial()
			c := newStreamClient(t, conn)
			began := time.Now()
			wantTime := func(want time.Duration) {
				t.Helper()
				if took := time.Since(began); took != want {
					t.Errorf("%s: after %v, want %v", name, took, want)
				}
			}
			c.post(1, maxRest+1)
			c.want("HEADERS 413", `DATA "no\n" false`)
			wantTime(0)
			c.want(`DATA "" true`, "RST_STREAM NO_ERROR")
			wantTime(duplex.Linger)
			c.post(3, maxRest+1)
			c.want("HEADERS 413", `DATA "no\n" false`)
			if err := c.WriteData(3, true, nil); err != nil {
				t.Fatal(err)
			}
			c.want(`DATA "" true`)
			c.post(5, maxRest+1)
			c.want("HEADERS 413", `DATA "no\n" false`)
			if err := c.WriteRSTStream(5, http2.ErrCodeCancel); err != nil {
				t.Fatal(err)
			}
			wantTime(duplex.Linger)
			conn.Close()
			close(conns)
			server.Close()
			synctest.Wait()
			if n := len(c.answers); n > 0 {
				t.Errorf("%s: %d more frames, first %s", name, n, <-c.answers)
			}
		})
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
