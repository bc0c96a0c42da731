// Package duplex is what a proxy needs that answers while the request's body is
// still on its way: connections whose answer is not lost because they take no
// more of the request, and bodies that nobody reads any more once the handler
// has returned.
package duplex

import (
	"errors"
	"net"
	"sync"
	"syscall"
)

// Conn returns a connection for an [http.Transport] to send requests over. A
// server may answer and close before it has read the whole request, after which
// writing fails. The transport would take that for the end, though the answer is
// there to be read, or not, depending on which of its goroutines comes first. So
// a write to a peer that has gone returns its error only when the connection is
// closed, which the transport does once it has read the answer, or that there is
// none.
func Conn(c net.Conn) net.Conn { return &conn{Conn: c, closed: make(chan struct{})} }

type conn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		<-c.closed
	}
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
