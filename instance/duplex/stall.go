package duplex

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// slowest is how many bytes a peer must take in half a limit.
const slowest = 16 << 10

// LimitStalls returns a listener for an [http.Server]. Writing to one of its connections
// fails with [os.ErrDeadlineExceeded] when the peer has taken nothing, or next to nothing,
// for limit. As long as bytes move an answer may take any time, and so may the gaps between
// the parts of an answer. Otherwise a client that does not read would hold its answer in
// memory for ever.
func LimitStalls(l net.Listener, limit time.Duration) net.Listener {
	return stallListener{l, limit}
}

type stallListener struct {
	net.Listener
	limit time.Duration
}

// Accept implements net.Listener.
func (l stallListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &gatheringConn{Conn: &stallConn{Conn: c, half: l.limit / 2}}, nil
}

// stallConn is a connection whose writes have a deadline that moves on with the bytes.
type stallConn struct {
	net.Conn
	// half is half of the limit. A write that has waited so long is tried again, because the
	// kernel reports room only once a third of its buffer, megabytes, is free. The second
	// try shows what the peer has taken since.
	half time.Duration

	mu sync.Mutex
	// until is the connection's write deadline. given is that of SetWriteDeadline, zero for
	// none.
	until, given time.Time
}

// Write implements net.Conn.
func (c *stallConn) Write(p []byte) (done int, err error) {
	for slow := false; ; {
		c.extend()
		n, err := c.Conn.Write(p[done:])
		done += n
		if !errors.Is(err, os.ErrDeadlineExceeded) || c.over() || slow && n < slowest {
			return done, err
		}
		slow = n < slowest // Two slow halves in a row are a stall.
	}
}

// extend moves the deadline to half from now. It leaves one that is nearly as late,
// because every change has to move a timer.
func (c *stallConn) extend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := time.Now().Add(c.half)
	if !c.given.IsZero() && c.given.Before(next) {
		next = c.given
	}
	if c.until.After(next) || next.Sub(c.until) > c.half/8 {
		c.set(next)
	}
}

// set sets the connection's deadline. The caller holds mu.
func (c *stallConn) set(t time.Time) {
	c.until = t
	_ = c.Conn.SetWriteDeadline(t) // It fails if the connection is gone; then so does writing.
}

// over reports whether the deadline of SetWriteDeadline has passed.
func (c *stallConn) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.given.IsZero() && !time.Now().Before(c.given)
}

// SetWriteDeadline implements net.Conn: writing fails at t, even if bytes move.
func (c *stallConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.given = t
	// net/http takes its deadline away after every request. The next write sets one.
	if !t.IsZero() {
		c.set(t)
	}
	return nil
}

// SetDeadline implements net.Conn.
func (c *stallConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// NetConn returns the connection below, as that of crypto/tls does.
func (c *stallConn) NetConn() net.Conn { return c.Conn }

// CloseWrite implements what [CloseWrite] asks for.
func (c *stallConn) CloseWrite() error { return CloseWrite(c.Conn) }

// CloseWrite ends what this side of a connection sends, as [net.TCPConn] can. net/http does so before it closes a
// connection, so that the peer can read a refusal.
func CloseWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
