package duplex_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/instance/duplex"
)

// counting counts the writes to a connection.
type counting struct {
	net.Conn
	writes atomic.Int32
}

func (c *counting) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// An answer of net/http's server that is longer than its buffer is one write, unless it is too long to be copied, or its
// rest comes late.
func TestAnswerIsOneWrite(t *testing.T) {
	for name, c := range map[string]struct {
		length int
		answer func(w io.Writer, body []byte)
		writes int
		gets   int           // bytes of the body
		first  time.Duration // until the first byte
	}{
		"short":    {100, func(w io.Writer, b []byte) { w.Write(b) }, 1, 100, 0},
		"long":     {10_000, func(w io.Writer, b []byte) { w.Write(b) }, 1, 10_000, 0},
		"in parts": {10_000, func(w io.Writer, b []byte) { w.Write(b[:3000]); w.Write(b[3000:6000]); w.Write(b[6000:]) }, 2, 10_000, 0},
		"large":    {1 << 20, func(w io.Writer, b []byte) { w.Write(b) }, 2, 1 << 20, 0},
		"late": {10_000, func(w io.Writer, b []byte) {
			w.Write(b[:5000])
			time.Sleep(time.Second)
			w.Write(b[5000:])
		}, 3, 10_000, 2 * time.Millisecond},
		"broken off": {10_000, func(w io.Writer, b []byte) {
			w.Write(b[:5000])
			panic(http.ErrAbortHandler)
		}, 1, -1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				counted := &counting{Conn: ours}
				server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Length", strconv.Itoa(c.length))
					c.answer(w, make([]byte, c.length))
				})}
				go server.Serve(duplex.LimitStalls(&one{counted}, minute))
				began := time.Now()
				if _, err := io.WriteString(theirs, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				from := bufio.NewReader(theirs)
				answer, err := http.ReadResponse(from, nil)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != c.first {
					t.Errorf("the first bytes took %v, not %v", took, c.first)
				}
				got, err := io.Copy(io.Discard, answer.Body)
				if broken := c.gets < 0; broken != (err != nil) || !broken && got != int64(c.gets) || got == 0 {
					t.Errorf("%d bytes, %v", got, err)
				}
				if n := int(counted.writes.Load()); n != c.writes {
					t.Errorf("%d writes, not %d", n, c.writes)
				}
				theirs.Close()
				server.Close()
			})
		})
	}
}

// A write that fails is reported, whether bytes waited or not.
func TestGatheredWriteFails(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := limited(t, minute)
			head := append([]byte("HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n"), make([]byte, 5000)...)[:4096]
			if n, err := ours.Write(head); n != len(head) || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
			theirs.Close()
			time.Sleep(wait)
			if n, err := ours.Write(make([]byte, 10)); n != 0 || err == nil {
				t.Errorf("after %v: %d bytes, %v", wait, n, err)
			}
			if err := ours.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
