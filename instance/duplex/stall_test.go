package duplex_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/instance/duplex"
)

// one is a listener of one connection in memory, on which synctest's clock has an effect.
type one struct{ conn net.Conn }

func (l *one) Accept() (net.Conn, error) {
	if l.conn == nil {
		return nil, net.ErrClosed
	}
	c := l.conn
	l.conn = nil
	return c, nil
}

func (l *one) Close() error   { return nil }
func (l *one) Addr() net.Addr { return &net.IPAddr{} }

// limited returns the ends of a connection, ours with a limit on stalls.
func limited(t *testing.T, limit time.Duration) (ours, theirs net.Conn) {
	t.Helper()
	a, b := net.Pipe()
	ours, err := duplex.LimitStalls(&one{a}, limit).Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	return ours, b
}

// read reads n bytes.
func read(t *testing.T, from io.Reader, n int) {
	t.Helper()
	if _, err := io.CopyN(io.Discard, from, int64(n)); err != nil {
		t.Error(err)
	}
}

const minute = time.Minute

// A peer that takes nothing, or next to nothing, is given up after the limit.
func TestStall(t *testing.T) {
	for name, drip := range map[string]int{"nothing": 0, "a byte a second": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := limited(t, minute)
				read := make(chan int)
				go func() {
					defer close(read)
					for drip > 0 {
						if _, err := theirs.Read(make([]byte, drip)); err != nil {
							return
						}
						time.Sleep(time.Second)
					}
				}()
				began := time.Now()
				n, err := ours.Write(make([]byte, 1<<20))
				if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took < minute*7/8 || took > minute || n > 100 {
					t.Errorf("after %v: %d bytes, %v", took, n, err)
				}
				ours.Close()
				<-read
			})
		})
	}
}

// As long as bytes move, a write may take any time, and so may the gaps between writes.
func TestNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := limited(t, minute)
		ended := make(chan error, 1)
		began := time.Now()
		go func() { // Ten writes with gaps of ten minutes.
			for range 10 {
				if _, err := ours.Write(make([]byte, 1<<20)); err != nil {
					ended <- err
					return
				}
				// As net/http does after every request.
				if err := ours.SetWriteDeadline(time.Time{}); err != nil {
					t.Error(err)
				}
				time.Sleep(10 * minute)
			}
			ended <- nil
		}()
		for range 10 * 32 { // 32 KiB every 20 s.
			time.Sleep(20 * time.Second)
			read(t, theirs, 32<<10)
		}
		if err := <-ended; err != nil || time.Since(began) < 100*minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// A deadline that is set holds even if bytes move, and also for a write that waits.
func TestGivenWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := limited(t, minute)
		var others sync.WaitGroup
		others.Go(func() {
			time.Sleep(5 * time.Second)
			if err := ours.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
				t.Error(err)
			}
		})
		others.Go(func() {
			for {
				if _, err := theirs.Read(make([]byte, 64<<10)); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
		began := time.Now()
		if _, err := ours.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 6*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if _, err := ours.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after the deadline: %v", err)
		}
		if err := ours.SetDeadline(time.Time{}); err != nil {
			t.Error(err)
		}
		if _, err := ours.Write([]byte("x")); err != nil {
			t.Errorf("without the deadline: %v", err)
		}
		ours.Close()
		others.Wait()
	})
}

// serveLimited serves a large answer over TCP, and returns the client's end of a connection
// and what ends the handler's write.
func serveLimited(t *testing.T, size int, limit time.Duration) (client *net.TCPConn, wrote <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, size))
		result <- err
	})}
	go server.Serve(duplex.LimitStalls(l, limit))
	t.Cleanup(func() { server.Close() })
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client = conn.(*net.TCPConn)
	if err := client.SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return client, result
}

// The kernel's buffers hide neither that a client does not read, nor that it reads slowly.
func TestStallOverTCP(t *testing.T) {
	const size, limit = 6 << 20, 300 * time.Millisecond
	t.Run("no reader", func(t *testing.T) {
		_, wrote := serveLimited(t, size, limit)
		if err := <-wrote; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("slow reader", func(t *testing.T) {
		client, wrote := serveLimited(t, size, limit)
		// A server's buffer of 2.5 MB and more becomes writable in steps of a third, and so
		// less often than twice in the limit.
		var got bytes.Buffer
		for tick := time.NewTicker(10 * time.Millisecond); got.Len() < size; <-tick.C {
			if _, err := io.CopyN(&got, client, 8<<10); err != nil {
				t.Fatalf("after %d bytes: %v", got.Len(), err)
			}
			if len(wrote) > 0 {
				break // The rest is in the kernel.
			}
		}
		if err := <-wrote; err != nil || got.Len() < size/8 {
			t.Errorf("error %v after %d bytes", err, got.Len())
		}
	})
}

// BenchmarkLimitStalls measures an exchange of a kept connection with and without the limit.
func BenchmarkLimitStalls(b *testing.B) {
	for _, c := range []struct {
		name string
		wrap func(net.Listener) net.Listener
	}{
		{"plain", func(l net.Listener) net.Listener { return l }},
		{"limited", func(l net.Listener) net.Listener { return duplex.LimitStalls(l, 30*time.Second) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			answer := make([]byte, 3000)
			server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(answer) })}
			go server.Serve(c.wrap(l))
			defer server.Close()
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			into := make([]byte, 8<<10)
			for b.Loop() {
				if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
					b.Fatal(err)
				}
				for got := 0; got < len(answer); {
					n, err := conn.Read(into)
					if err != nil {
						b.Fatal(err)
					}
					got += n
				}
			}
		})
	}
}
