package web

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// connected returns a Socket and its peer.
func connected(t *testing.T, network, address string) (*Socket, net.Conn) {
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = peer.Close(), conn.Close() })
	return newSocket(conn), peer
}

func TestSocket(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // More than both sides buffer.
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		t.Run(network, func(t *testing.T) {
			s, peer := connected(t, network, address)
			go func() {
				_, _ = io.Copy(peer, peer)
				_ = peer.Close()
			}()
			var v net.Buffers
			var due []byte
			for i := range 3 * partsPerCall { // Some are empty, one is large.
				b := large[i : i+i%5]
				if i == partsPerCall+7 {
					b = large
				}
				v, due = append(v, b), append(due, b...)
			}
			sent := make(chan error, 1)
			go func() {
				n, err := WriteBuffers(s, &v)
				m, again := s.Write([]byte("the end"))
				if n != int64(len(due)) || m != 7 || len(v) != 0 {
					t.Errorf("%d of %d and %d of 7 bytes were sent, %d buffers are left", n, len(due), m, len(v))
				}
				sent <- errors.Join(err, again, s.CloseWrite())
			}()
			got, err := io.ReadAll(s)
			if err = errors.Join(err, <-sent); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, append(due, "the end"...)) {
				t.Errorf("%d other bytes came back", len(got))
			}
		})
	}
}

func TestSocketFails(t *testing.T) {
	s, peer := connected(t, "tcp", "127.0.0.1:0")
	fails := func(why string, read, write error) {
		t.Helper()
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, read) {
			t.Errorf("%s: reading: %v, not %v", why, err, read)
		}
		if _, err := s.Write([]byte("x")); !errors.Is(err, write) {
			t.Errorf("%s: writing: %v, not %v", why, err, write)
		}
	}
	if n, err := s.Read(nil); n != 0 || err != nil {
		t.Errorf("reading nothing: %d, %v", n, err)
	}
	if err := s.SetDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	fails("after the deadline", os.ErrDeadlineExceeded, os.ErrDeadlineExceeded)

	// A peer with linger 0 resets the connection.
	if err := errors.Join(s.SetDeadline(time.Time{}), peer.(*net.TCPConn).SetLinger(0), peer.Close()); err != nil {
		t.Fatal(err)
	}
	fails("after a reset", syscall.ECONNRESET, syscall.EPIPE)
	if _, err := s.Write([]byte("x")); err == nil || !strings.HasPrefix(err.Error(), "write tcp 127.0.0.1:") {
		t.Errorf("the error does not name the connection: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	fails("after Close", net.ErrClosed, net.ErrClosed)
}

func TestSocketOfOthers(t *testing.T) {
	a, b := net.Pipe()
	if NewSocket(a) != a {
		t.Error("a pipe is no socket")
	}
	go func() {
		_, _ = WriteBuffers(a, &net.Buffers{[]byte("to "), []byte("read")})
		_ = a.Close()
	}()
	if got, err := io.ReadAll(b); err != nil || string(got) != "to read" {
		t.Errorf("%q, %v", got, err)
	}
}
