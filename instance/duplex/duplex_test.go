package duplex_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance/duplex"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is a connection and its peer.
func pair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if ours, err = net.Dial("unix", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ours.Close()
		theirs.Close()
	})
	return ours, theirs
}

// A write to a closed peer fails only when this side closes the connection, so the
// peer's answer can be read before.
func TestConn(t *testing.T) {
	ours, theirs := pair(t)
	conn := duplex.Conn(ours)
	fmt.Fprint(theirs, "answer")
	if _, err := conn.Write([]byte("request")); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	wrote := make(chan error, 1)
	go func() {
		_, err := conn.Write([]byte("more"))
		wrote <- err
	}()
	answer := make([]byte, len("answer"))
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "answer" {
		t.Errorf("%q, %v", answer, err)
	}
	select {
	case err := <-wrote:
		t.Errorf("writing has failed already: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	for range 2 {
		conn.Close()
	}
	if err := <-wrote; !errors.Is(err, syscall.EPIPE) {
		t.Errorf("error %v", err)
	}
	// Errors of this side's come at once.
	if _, err := conn.Write(nil); err == nil {
		t.Error("a closed connection takes more")
	}
}

// exchange sends the beginning of a request with a body of 10 bytes to a handler
// and returns all that comes back.
func exchange(t *testing.T, sent string, handle http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handle)
	defer server.Close()
	conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n%s", sent)
	got, err := io.ReadAll(bufio.NewReader(conn))
	if err != nil {
		t.Error(err)
	}
	return string(got)
}

// Finish waits a while for the rest of an unread body. The answer is sent meanwhile.
func TestFinish(t *testing.T) {
	const linger = 50 * time.Millisecond
	exchange(t, "half", func(w http.ResponseWriter, r *http.Request) {
		b := duplex.NewBody(w, r, 0)
		reading := make(chan error, 1)
		go func() {
			_, err := io.ReadAll(b)
			reading <- err
		}()
		if b.Ended() || b.Err() != nil {
			t.Error("it has ended")
		}
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusTeapot)
		began := time.Now()
		b.Finish(linger)
		if took := time.Since(began); took < linger {
			t.Errorf("it waited for %v", took)
		}
		if err := <-reading; err == nil {
			t.Error("the half is all")
		}
		if _, err := b.Read(make([]byte, 1)); err == nil {
			t.Error("it can be read afterwards")
		}
	})
	answer := exchange(t, "0123456789", func(w http.ResponseWriter, r *http.Request) {
		b := duplex.NewBody(w, r, time.Hour)
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, "early")
		b.Finish(time.Hour)
		if !b.Ended() {
			t.Error("the rest was not taken")
		}
	})
	if !strings.Contains(answer, "early") {
		t.Errorf("%q", answer)
	}
	if none := (*duplex.Body)(nil); !none.Ended() || none.Err() != io.EOF {
		t.Error("no body has not ended")
	}
}

// Stop ends a read that waits for a client.
func TestStop(t *testing.T) {
	exchange(t, "half", func(w http.ResponseWriter, r *http.Request) {
		b := duplex.NewBody(w, r, 0)
		w.Header().Set("Connection", "close")
		if _, err := io.ReadFull(b, make([]byte, 4)); err != nil {
			t.Error(err)
		}
		reading := make(chan error)
		go func() {
			_, err := b.Read(make([]byte, 1))
			reading <- err
		}()
		b.Stop()
		if err := <-reading; !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("error %v", err)
		}
		b.Finish(0)
	})
}

// connection is a writer of answers whose reading has a connection's deadline.
type connection struct {
	http.ResponseWriter
	conn net.Conn
}

// SetReadDeadline is what [http.ResponseController] looks for.
func (c connection) SetReadDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

// A body fails after the idle time, unless Progress is called.
func TestIdle(t *testing.T) {
	const idle = 200 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		b := duplex.NewBody(connection{httptest.NewRecorder(), ours}, &http.Request{ContentLength: 10, Body: ours}, idle)
		go func() {
			fmt.Fprint(theirs, "half")
			for range 4 {
				time.Sleep(idle / 2)
				b.Progress()
			}
		}()
		began := time.Now()
		if got, err := io.ReadAll(b); string(got) != "half" || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 3*idle {
			t.Errorf("%q, %v after %v", got, err, time.Since(began))
		}
		b.Finish(0)
	})
}

// After a complete body the connection has no deadline.
func TestIdleAfterTheBody(t *testing.T) {
	const idle = 200 * time.Millisecond
	exchange(t, "0123456789", func(w http.ResponseWriter, r *http.Request) {
		b := duplex.NewBody(w, r, idle)
		w.Header().Set("Connection", "close")
		if _, err := io.ReadAll(b); err != nil {
			t.Error(err)
		}
		b.Progress()
		time.Sleep(2 * idle)
		if r.Context().Err() != nil {
			t.Error("the deadline of the body's has ended the request")
		}
	})
}
