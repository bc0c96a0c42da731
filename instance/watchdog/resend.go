package watchdog

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/instance/duplex"
)

// resender is a transport that sends a request once more if the program has just closed the connection on which it
// was sent. Servers close kept connections when they like, and that is no fault of the request. It sends a request
// again only if its method allows it (RFC 9110 §9.2.2), or if the kernel says that the program's side has taken none
// of its bytes. It does not send a POST again that had arrived before the program closed, because the program may have
// read it.
type resender struct {
	http.Transport
	// bodies is how many requests keep their bodies, up to maxBodies: each keeps up to duplex.MaxReplay bytes, and
	// the function's limit of memory does not hold for this process.
	bodies atomic.Int64
}

const maxBodies = 256

// idempotent are the methods that net/http does not know as such, but RFC 9110 does.
var idempotent = []string{http.MethodPut, http.MethodDelete}

var errTooLargeToResend = errors.New("the body is not kept any more")

// RoundTrip implements http.RoundTripper.
func (t *resender) RoundTrip(r *http.Request) (*http.Response, error) {
	if e := exchangeOf(r); r.Body != nil && r.Body != http.NoBody && t.keeps(e) {
		e.replay = duplex.NewReplay(r.Body, nil)
		r.Body, _ = e.replay.Again()
		r.GetBody = func() (io.ReadCloser, error) {
			if body, ok := e.replay.Again(); ok {
				return body, nil
			}
			return nil, errTooLargeToResend
		}
	}
	if slices.Contains(idempotent, r.Method) && r.Header["Idempotency-Key"] == nil {
		r.Header["Idempotency-Key"] = nil // Tells net/http, and is not sent.
	}
	for {
		var used *programConn // nil if it is a new one
		ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
			used = nil
			if c, ok := i.Conn.(*programConn); ok && i.Reused {
				used = c
				c.begin()
			}
		}})
		response, err := t.Transport.RoundTrip(r.WithContext(ctx))
		if err == nil || used == nil || !used.untouched() || r.Context().Err() != nil {
			return response, err
		}
		if r.GetBody == nil && (r.Body == nil || r.Body == http.NoBody) {
			continue
		}
		if r.GetBody == nil {
			return nil, err
		}
		body, again := r.GetBody()
		if again != nil {
			return nil, err
		}
		r.Body = body
	}
}

// keeps reports whether an exchange may keep its body. If so, the exchange's end gives the place back.
func (t *resender) keeps(e *exchange) bool {
	if t.bodies.Add(1) > maxBodies {
		t.bodies.Add(-1)
		return false
	}
	e.release = func() { t.bodies.Add(-1) }
	return true
}

// programConn is a connection to the program.
type programConn struct {
	net.Conn
	tcp *net.TCPConn
	// writes counts the calls of Write, and closing says that those that come now write nothing.
	writes  atomic.Int64
	closing atomic.Bool

	mu sync.Mutex
	// begun is writes when the latest request began. idle says that there was none until this side closed.
	begun int64
	idle  bool
	// before is what the program's side had acknowledged when the latest request began, after what it has when
	// this side closed. Both are nil if the kernel does not say.
	before, after *unix.TCPInfo
}

// begin notes the beginning of a request.
func (c *programConn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before, c.begun = c.info(), c.writes.Load()
}

// Write implements net.Conn.
func (c *programConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	if c.closing.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *programConn) Close() error {
	c.closing.Store(true)
	c.mu.Lock()
	if c.after == nil {
		c.idle, c.after = c.writes.Load() == c.begun, c.info()
		// The program's side has closed, and this side has sent something since: a reset or an acknowledgement comes,
		// at once unless the machine is busy.
		const halfClosed = 8 // TCP_CLOSE_WAIT
		for began := time.Now(); c.after != nil && c.after.State == halfClosed && c.after.Unacked > 0 && time.Since(began) < time.Second; {
			time.Sleep(time.Millisecond)
			c.after = c.info()
		}
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// untouched reports whether the program cannot have read anything of the latest request: nothing was sent, or the
// connection was reset and its side's kernel has acknowledged none of the request's bytes. A kernel acknowledges all
// bytes that it keeps for a program, and answers later ones with a reset.
func (c *programConn) untouched() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	const ended = 7 // TCP_CLOSE
	return c.idle || c.before != nil && c.after != nil && c.after.State == ended && c.after.Bytes_acked == c.before.Bytes_acked
}

func (c *programConn) info() (info *unix.TCPInfo) {
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) { // It fails if the connection is closed.
		if got, err := unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO); err == nil {
			info = got
		}
	})
	return info
}
