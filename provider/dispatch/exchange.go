package dispatch

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// link is the way to one instance: a few kept connections, each used by one
// exchange at a time. net/http's client would hand every exchange through two
// goroutines of its own; here the goroutine that leads a batch writes and reads
// itself.
type link struct {
	network, address string
	timeout          time.Duration
	dial             func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	idle   []*connection
	closed bool
}

type connection struct {
	net.Conn
	reader *bufio.Reader
}

// maxReply bounds an instance's answer to one batch, in bytes.
const maxReply = 1 << 30

// exchange sends a batch and reads its answers, at most one per member, in
// order. exec is the engine's time as the instance reports it, or else the time
// of the whole exchange.
func (l *link) exchange(requests []frame.Request) (responses []frame.Response, exec time.Duration, err error) {
	c, err := l.get()
	if err != nil {
		return nil, 0, err
	}
	began := time.Now()
	responses, exec, err = c.roundTrip(requests, began.Add(l.timeout))
	if err != nil {
		c.Close()
		return nil, 0, err
	}
	l.put(c)
	if exec == 0 {
		exec = time.Since(began)
	}
	return responses, exec, nil
}

func (c *connection) roundTrip(requests []frame.Request, deadline time.Time) ([]frame.Response, time.Duration, error) {
	if err := c.SetDeadline(deadline); err != nil {
		return nil, 0, err
	}
	body, length := frame.EncodeRequests(requests)
	request := make([]byte, 0, 160)
	request = append(request, "POST "+frame.Path+" HTTP/1.1\r\nHost: instance\r\nContent-Type: "+frame.ContentType+"\r\nContent-Length: "...)
	request = strconv.AppendInt(request, length, 10)
	request = append(request, "\r\n\r\n"...)
	buffers := append(net.Buffers{request}, body...)
	if _, err := buffers.WriteTo(c.Conn); err != nil {
		return nil, 0, fmt.Errorf("send batch: %w", err)
	}
	answer, err := c.readHead()
	if err != nil {
		return nil, 0, fmt.Errorf("read batch answer: %w", err)
	}
	reply := make([]byte, answer.length)
	if _, err := io.ReadFull(c.reader, reply); err != nil {
		return nil, 0, fmt.Errorf("read batch answer: %w", err)
	}
	answers, err := frame.DecodeResponses(reply)
	if err != nil {
		return nil, 0, err
	}
	if len(answers) != len(requests) {
		return nil, 0, fmt.Errorf("instance answered %d of %d members", len(answers), len(requests))
	}
	return answers, answer.exec, nil
}

// head is what matters of an answer's status line and headers.
type head struct {
	length int64
	exec   time.Duration
}

// readHead reads an answer's head. The peer is our own instance server, so of
// HTTP/1.1 only what it uses is understood: a status of 200 and a body with
// Content-Length. Anything else is an error, and the connection is given up.
func (c *connection) readHead() (head, error) {
	h := head{length: -1}
	for first := true; ; first = false {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return h, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if first {
			if !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
				return h, fmt.Errorf("the instance answered %q", line)
			}
			continue
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if h.length, err = strconv.ParseInt(string(value), 10, 64); err != nil {
				return h, fmt.Errorf("the instance's Content-Length: %w", err)
			}
		case bytes.EqualFold(name, []byte(frame.ExecHeader)):
			micros, err := strconv.ParseInt(string(value), 10, 64)
			if err != nil {
				return h, fmt.Errorf("the instance's %s: %w", frame.ExecHeader, err)
			}
			h.exec = time.Duration(micros) * time.Microsecond
		}
	}
	if h.length < 0 || h.length > maxReply {
		return h, fmt.Errorf("the instance's answer has a length of %d bytes", h.length)
	}
	return h, nil
}

func (l *link) get() (*connection, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, net.ErrClosed
	}
	if n := len(l.idle); n > 0 {
		c := l.idle[n-1]
		l.idle = l.idle[:n-1]
		l.mu.Unlock()
		return c, nil
	}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := l.dial(ctx, l.network, l.address)
	if err != nil {
		return nil, fmt.Errorf("connect to instance: %w", err)
	}
	return &connection{Conn: conn, reader: bufio.NewReaderSize(conn, 16<<10)}, nil
}

func (l *link) put(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		c.Close()
		return
	}
	l.idle = append(l.idle, c)
}

// close drops the kept connections; one in use is dropped when it comes back.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, c := range l.idle {
		c.Close()
	}
	l.idle = nil
}
