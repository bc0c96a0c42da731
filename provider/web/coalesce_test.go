package web

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// countedConn counts the writes of its server.
type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

type countedListener struct {
	net.Listener
	writes *atomic.Int64
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, l.writes}, err
}

// messageOf returns a message of gRPC.
func messageOf(content string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(content))), content...)
}

// serveCoalesced serves a handler over HTTP/2 and returns a client and the count of the server's writes.
func serveCoalesced(t *testing.T, handler http.HandlerFunc) (*http.Client, *atomic.Int64) {
	listener, bounds := make(pipes), NewConnections(ConnectionOptions{Max: 1, MaxHeads: 1 << 20, AnswerTimeout: time.Minute})
	s := &boundServer{Connections: bounds, pipes: listener}
	writes := new(atomic.Int64)
	server := NewServer(handler, bounds)
	go server.Serve(bounds.Listen(countedListener{listener, writes}))
	t.Cleanup(func() {
		close(listener)
		server.Close()
		synctest.Wait()
	})
	return s.overHTTP2(t), writes
}

// post sends a request and returns its answer with the whole body, and fails unless the trailer has come, too.
func post(t *testing.T, client *http.Client, ctx context.Context, body io.Reader) string {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x/", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Expect", "100-continue")
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil || resp.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("the answer ends with %v and the trailers %v", err, resp.Trailer)
	}
	return string(content)
}

// The headers, the message and the trailers of an answer of gRPC leave with one write.
func TestAnswersOfGRPCLeaveWithOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, writes := serveCoalesced(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			_, _ = w.Write(messageOf("content"))
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		})
		for n := range 3 {
			before := writes.Load()
			if got := post(t, client, t.Context(), nil); got != string(messageOf("content")) {
				t.Errorf("the answer is %q", got)
			}
			synctest.Wait()
			if count := writes.Load() - before; n > 0 && count != 1 { // The first one comes with settings.
				t.Errorf("answer %d took %d writes, want 1", n, count)
			}
		}
	})
}

// A handler that flushes has its headers and messages sent at once. So has one whose client must send more first.
func TestFlushedAnswersDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := make(chan struct{})
		client, _ := serveCoalesced(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			for range 3 {
				_ = http.NewResponseController(w).Flush()
				<-read // The client has what is written.
				_, _ = w.Write(messageOf("content"))
			}
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		})
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r) // It returns with the headers.
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for range 2 {
			read <- struct{}{}
			if _, err := io.ReadFull(resp.Body, make([]byte, len(messageOf("content")))); err != nil {
				t.Fatal(err)
			}
		}
		read <- struct{}{}
		if _, err := io.ReadAll(resp.Body); err != nil || resp.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("the answer ends with %v and the trailers %v", err, resp.Trailer)
		}
	})
}

// The answer 100 to a client that waits for it does not wait.
func TestInterimAnswersDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := serveCoalesced(t, func(w http.ResponseWriter, r *http.Request) {
			content, _ := io.ReadAll(r.Body)
			_, _ = w.Write(messageOf(string(content)))
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		})
		client.Transport.(*http.Transport).ExpectContinueTimeout = time.Hour
		var continued atomic.Bool
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { continued.Store(true) }})
		if got := post(t, client, ctx, strings.NewReader("sent")); got != string(messageOf("sent")) {
			t.Errorf("the answer is %q", got)
		}
		if !continued.Load() {
			t.Error("the client has got no 100")
		}
	})
}

// frameOf returns a frame.
func frameOf(kind, flags byte, stream uint32, payload []byte) []byte {
	head := []byte{0, byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(head, stream), payload...)
}

// However a server's bytes are cut into writes, all of them are sent in their order, and nothing waits after a frame
// that ends a stream.
func TestCoalescerLosesNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	long := bytes.Repeat([]byte{'x'}, 300)
	kinds := [][]byte{
		frameOf(1, 4, 1, []byte{0x88, 0x5f}), frameOf(1, 5, 1, []byte{0xbe}), frameOf(0, 0, 1, messageOf("short")),
		frameOf(0, 0, 3, long), frameOf(0, 1, 3, nil), frameOf(4, 1, 0, nil), frameOf(0, 0, 3, messageOf(string(long))),
	}
	for range 2000 {
		input := frameOf(4, 0, 0, []byte("settings"))
		var c coalescer
		var output []byte
		add := func(p []byte) {
			all, wait := c.add(p)
			if wait {
				return
			}
			if n := random.IntN(len(all) + 1); random.IntN(8) == 0 { // A part is written. The rest is added again.
				output = append(output, all[:n]...)
				if all, wait = c.add(p[c.failed(n, len(p)):]); wait {
					t.Fatal("bytes wait after an error")
				}
			}
			output = append(output, all...)
			c.sent()
		}
		add(input)
		for range random.IntN(10) {
			frame := kinds[random.IntN(len(kinds))]
			input = append(input, frame...)
			for len(frame) > 0 {
				n := 1 + random.IntN(len(frame))
				add(frame[:n])
				frame = frame[n:]
			}
		}
		last := frameOf(1, 5, 1, []byte{0xbe})
		input = append(input, last...)
		if add(last); !bytes.Equal(output, input) {
			t.Fatalf("the bytes\n%x became\n%x", input, output)
		}
	}
	for _, first := range []string{"HTTP/1.1 200 OK\r\n\r\n", "\x16\x03\x03\x04\x00\x00\x00\x00\x00\x00"} {
		var c coalescer
		for _, p := range [][]byte{[]byte(first), kinds[0]} {
			if _, wait := c.add(p); wait {
				t.Errorf("bytes after %q wait", first)
			}
		}
	}
}

// A connection that cannot be written to fails.
func TestCoalescedWritesFail(t *testing.T) {
	ours, theirs := net.Pipe()
	theirs.Close()
	c := &connection{Conn: ours, bounds: NewConnections(ConnectionOptions{})}
	if _, err := c.Write([]byte("HTTP/1.1 200 OK\r\n")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the error is %v", err)
	}
}

// readConn has bytes to read and counts the reads.
type readConn struct {
	net.Conn
	content io.Reader
	reads   int
}

func (c *readConn) Read(p []byte) (int, error) {
	c.reads++
	return c.content.Read(p)
}

// Frames that have come together are read with one read, and bytes of other protocols not ahead.
func TestFramesAreReadTogether(t *testing.T) {
	sent := append(frameOf(1, 4, 1, []byte("head")), frameOf(0, 1, 1, messageOf("content"))...)
	below := &readConn{content: bytes.NewReader(sent)}
	c := &connection{Conn: below, bounds: NewConnections(ConnectionOptions{MaxHeads: 1 << 20})}
	var got []byte
	for _, n := range []int{frameHead, len("head"), frameHead, len(messageOf("content"))} {
		part := make([]byte, n)
		if _, err := io.ReadFull(c, part); err != nil {
			t.Fatal(err)
		}
		got = append(got, part...)
	}
	if !bytes.Equal(got, sent) || below.reads != 1 {
		t.Errorf("%d reads got %q, want %q with one", below.reads, got, sent)
	}
	if c.head != int64(len(sent)) {
		t.Errorf("the head counts %d bytes, want %d", c.head, len(sent))
	}
	below = &readConn{content: strings.NewReader("0123456789")}
	c = &connection{Conn: below, bounds: c.bounds}
	for _, n := range []int{1, 5, 2} {
		if _, err := io.ReadFull(c, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	if below.reads != 3 {
		t.Errorf("%d reads, want 3", below.reads)
	}
}

// Headers whose body never comes, because the client has no room for it, do not wait for ever.
func TestHeldFramesAreWrittenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		c := &connection{Conn: server}
		settings, headers := frameOf(4, 0, 0, nil), frameOf(1, 4, 1, []byte{0x88})
		began := time.Now()
		go func() {
			for _, frame := range [][]byte{settings, headers} {
				if n, err := c.Write(frame); n != len(frame) || err != nil {
					t.Errorf("%d bytes are written of %d: %v", n, len(frame), err)
				}
			}
		}()
		got := make([]byte, len(settings)+len(headers))
		if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, append(settings, headers...)) {
			t.Fatalf("%x: %v", got, err)
		}
		if took := time.Since(began); took != coalescingTime {
			t.Errorf("after %v, want %v", took, coalescingTime)
		}
	})
}
