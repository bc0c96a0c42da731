// Package duplex helps a proxy that answers while the request's body is still
// arriving. [Conn] keeps an answer that a server sends before it has read the whole
// request. [Body] guarantees that no goroutine reads a body after the handler has
// returned. [LimitStalls] ends the connections of clients that do not read their answers.
// The package does not forward anything itself. Begin with [Body].
package duplex

import (
	"errors"
	"net"
	"sync"
	"syscall"
)

// Conn wraps a connection over which an [http.Transport] sends requests. A write to a
// peer that has closed returns its error only when this side closes the connection.
// The transport closes it once it has read the answer, or has found that there is none.
// The reason: a server may answer and close before it has read the whole request, and
// then writing fails. The transport would give up on a write error, even though the
// answer can be read, depending on which of its goroutines comes first.
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
