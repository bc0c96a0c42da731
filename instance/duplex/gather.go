package duplex

import (
	"bytes"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"
)

const (
	// bufferSize is the size of the buffer of net/http's server.
	bufferSize = 4 << 10
	// joined is up to how many bytes are copied so that they are written at once.
	joined = 64 << 10
	// joiningTime is how long the first bytes of an answer wait for the rest.
	joiningTime = 2 * time.Millisecond
)

// gatheringConn writes an answer of net/http's server with one system call. The server makes two if it has more than
// bufferSize bytes: one for the head and as much of the body as its buffer holds, one for the rest. The reader wakes for
// each, and where it shares a core with the writer, it takes the core before the rest is written. So the first bytes wait
// for the rest, which mostly follows at once. If it does not, they are written after joiningTime.
type gatheringConn struct {
	net.Conn
	mu      sync.Mutex
	held    *[]byte
	release *time.Timer
}

// gathered has memory for the bytes that wait.
var gathered = sync.Pool{New: func() any { b := make([]byte, 0, 4*bufferSize); return &b }}

// Write implements net.Conn.
func (c *gatheringConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.held == nil && len(p) == bufferSize && continues(p):
		c.held = gathered.Get().(*[]byte)
		*c.held = append((*c.held)[:0], p...)
		if c.release == nil {
			c.release = time.AfterFunc(joiningTime, func() {
				if c.flush(false) != nil {
					_ = c.Conn.Close() // A later write must not follow what is missing.
				}
			})
		} else {
			c.release.Reset(joiningTime)
		}
		return len(p), nil
	case c.held == nil:
		return c.Conn.Write(p)
	}
	c.release.Stop()
	if len(p) > joined {
		if err := c.writeHeld(); err != nil {
			return 0, err
		}
		return c.Conn.Write(p)
	}
	before := len(*c.held)
	*c.held = append(*c.held, p...)
	n, err := c.Conn.Write(*c.held)
	c.forget()
	return max(0, n-before), err
}

// flush writes what waits. busy: it gives up if something is being written.
func (c *gatheringConn) flush(busy bool) error {
	if !busy {
		c.mu.Lock()
	} else if !c.mu.TryLock() {
		return nil
	}
	defer c.mu.Unlock()
	return c.writeHeld()
}

// writeHeld writes what waits. The lock is held.
func (c *gatheringConn) writeHeld() error {
	if c.held == nil {
		return nil
	}
	_, err := c.Conn.Write(*c.held)
	c.forget()
	return err
}

func (c *gatheringConn) forget() {
	gathered.Put(c.held)
	c.held = nil
}

// continues reports whether the first bytes of an answer have its head, but not all of its body.
func continues(p []byte) bool {
	head, body, whole := bytes.Cut(p, []byte("\r\n\r\n"))
	if !whole || !bytes.HasPrefix(head, []byte("HTTP/1.")) {
		return false
	}
	_, length, _ := bytes.Cut(head, []byte("\r\nContent-Length: "))
	length, _, _ = bytes.Cut(length, []byte("\r\n"))
	n, err := strconv.Atoi(string(length))
	return err == nil && n > len(body)
}

// Close implements net.Conn.
func (c *gatheringConn) Close() error { return errors.Join(c.flush(true), c.Conn.Close()) }

// NetConn returns the connection below, as that of crypto/tls does.
func (c *gatheringConn) NetConn() net.Conn { return c.Conn }

// CloseWrite implements what [CloseWrite] asks for.
func (c *gatheringConn) CloseWrite() error { return errors.Join(c.flush(false), CloseWrite(c.Conn)) }
