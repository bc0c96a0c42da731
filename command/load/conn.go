package load

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// idleCheck is the idle time after which do checks, with a system call, whether the
// server has closed the connection.
const idleCheck = 500 * time.Millisecond

// conn is one connection to a target with an HTTP/1.1 client, for one request at a
// time. It is not safe for concurrent use, except for close.
type conn struct {
	endpoint *endpoint
	request  *http.Request // what http.ReadResponse needs to know
	keep     bool          // whether the caller wants to see bodies

	net    net.Conn
	reader *bufio.Reader
	head   []byte
	body   bytes.Buffer
	used   time.Time
	// forget stops the end of do's context from closing net.
	forget func() bool
}

func newConn(e *endpoint, keep bool) *conn {
	return &conn{
		endpoint: e,
		request:  &http.Request{Method: e.method},
		keep:     keep,
		reader:   bufio.NewReaderSize(nil, 4<<10),
	}
}

// do sends one request and reads its answer: the status and, if the conn was
// made to keep them or the request was refused, the body, valid until the next call. A request is sent
// once and never again, so an error says that it may or may not have been
// executed. After an error the next call dials again. When the ctx of the call
// that dialled ends, the connection is cut.
func (c *conn) do(ctx context.Context, header, body []byte, deadline time.Time) (status int, answer []byte, err error) {
	if err := c.ready(ctx, deadline); err != nil {
		return 0, nil, err
	}
	status, closes, err := c.exchange(header, body, deadline)
	if err != nil || closes {
		c.close()
	}
	c.used = time.Now()
	return status, c.body.Bytes(), err
}

// ready makes sure that c has an open connection.
func (c *conn) ready(ctx context.Context, deadline time.Time) error {
	if c.net != nil && time.Since(c.used) > idleCheck && closedByPeer(c.net) {
		c.close()
	}
	if c.net != nil {
		return nil
	}
	dialer := net.Dialer{Deadline: deadline}
	n, err := dialer.DialContext(ctx, c.endpoint.network, c.endpoint.address)
	if err != nil {
		return err
	}
	c.forget = context.AfterFunc(ctx, func() { n.Close() })
	if c.endpoint.tls != nil {
		n = tls.Client(n, c.endpoint.tls) // The handshake is part of the first request.
	}
	c.net = n
	c.reader.Reset(n)
	return nil
}

func (c *conn) exchange(header, body []byte, deadline time.Time) (status int, closes bool, err error) {
	if err := c.net.SetDeadline(deadline); err != nil {
		return 0, false, err
	}
	broken := c.send(header, body)
	// A server may refuse a body without reading it: it answers and closes early.
	response, err := c.response()
	if broken != nil && err != nil {
		return 0, false, fmt.Errorf("send the request: %w", broken)
	}
	if err != nil {
		return 0, false, fmt.Errorf("reading the answer: %w", err)
	}
	c.body.Reset()
	if c.keep || response.StatusCode > 299 {
		_, err = c.body.ReadFrom(response.Body)
	} else {
		_, err = io.Copy(io.Discard, response.Body)
	}
	if err != nil {
		return 0, false, fmt.Errorf("reading the answer: %w", err)
	}
	return response.StatusCode, response.Close || broken != nil, nil
}

// send writes a request.
func (c *conn) send(header, body []byte) error {
	c.head = c.endpoint.appendHead(c.head[:0], header, len(body))
	if c.endpoint.tls != nil {
		c.head = append(c.head, body...) // A small request is one record.
		_, err := c.net.Write(c.head)
		return err
	}
	request := net.Buffers{c.head, body}
	_, err := request.WriteTo(c.net)
	return err
}

// response reads the final answer up to its body.
func (c *conn) response() (*http.Response, error) {
	for {
		r, err := http.ReadResponse(c.reader, c.request)
		if err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = errors.New("the server closed the connection")
			}
			return nil, err
		}
		if r.StatusCode >= 200 || r.StatusCode == http.StatusSwitchingProtocols {
			return r, nil
		}
	}
}

func (c *conn) close() {
	if c.net != nil {
		c.forget()
		c.net.Close()
		c.net = nil
	}
}

// closedByPeer checks, without waiting, whether an idle connection has anything to
// read: an end of file, an error, or an answer that nobody asked for.
func closedByPeer(n net.Conn) bool {
	if secure, ok := n.(*tls.Conn); ok {
		n = secure.NetConn()
	}
	sc, ok := n.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	closed := true
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, e := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		closed = e != syscall.EAGAIN
		return true
	})
	return closed || err != nil
}
