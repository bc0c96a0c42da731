package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// idleCheck is how long a connection may lie idle before it is worth a system
// call to see whether the server has closed it meanwhile.
const idleCheck = 500 * time.Millisecond

// conn is one connection to a target, and the client's side of HTTP/1.1 on it:
// one request at a time. Not safe for concurrent use, but for close.
type conn struct {
	endpoint *endpoint
	request  *http.Request // what http.ReadResponse needs to know
	keep     bool          // whether the caller wants to see bodies

	net    net.Conn
	reader *bufio.Reader
	head   []byte
	body   bytes.Buffer
	used   time.Time
	// forget keeps the end of the context of do from closing net.
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
// made to keep them, the body, valid until the next call. A request is sent
// once and never again, so an error says that it may or may not have been
// executed. After an error the next call dials anew. When the ctx of the call
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

// ready leaves c with an open connection.
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
	c.net = n
	c.forget = context.AfterFunc(ctx, func() { n.Close() })
	c.reader.Reset(n)
	return nil
}

func (c *conn) exchange(header, body []byte, deadline time.Time) (status int, closes bool, err error) {
	if err := c.net.SetDeadline(deadline); err != nil {
		return 0, false, err
	}
	c.head = c.endpoint.appendHead(c.head[:0], header, len(body))
	request := net.Buffers{c.head, body}
	_, broken := request.WriteTo(c.net)
	// A server that refuses a body unread answers and hangs up meanwhile.
	response, err := c.response()
	if broken != nil && err != nil {
		return 0, false, fmt.Errorf("sending the request: %w", broken)
	}
	if err != nil {
		return 0, false, fmt.Errorf("reading the answer: %w", err)
	}
	c.body.Reset()
	if c.keep {
		_, err = c.body.ReadFrom(response.Body)
	} else {
		_, err = io.Copy(io.Discard, response.Body)
	}
	if err != nil {
		return 0, false, fmt.Errorf("reading the answer: %w", err)
	}
	return response.StatusCode, response.Close || broken != nil, nil
}

// response reads up to the body of the final answer.
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

// closedByPeer looks, without waiting, whether there is anything to read on an
// idle connection: an end of file, an error, or an answer to no request.
func closedByPeer(n net.Conn) bool {
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
