package dispatch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
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
	head := make([]byte, 0, 160)
	head = append(head, "POST "+frame.Path+" HTTP/1.1\r\nHost: instance\r\nContent-Type: "+frame.ContentType+"\r\nContent-Length: "...)
	head = strconv.AppendInt(head, length, 10)
	head = append(head, "\r\n\r\n"...)
	buffers := append(net.Buffers{head}, body...)
	if _, err := buffers.WriteTo(c.Conn); err != nil {
		return nil, 0, fmt.Errorf("send batch: %w", err)
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("read batch answer: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.ContentLength < 0 || response.ContentLength > maxReply {
		return nil, 0, fmt.Errorf("instance answered a batch with %s, %d bytes", response.Status, response.ContentLength)
	}
	reply := make([]byte, response.ContentLength)
	if _, err := io.ReadFull(response.Body, reply); err != nil {
		return nil, 0, fmt.Errorf("read batch answer: %w", err)
	}
	answers, err := frame.DecodeResponses(reply)
	if err != nil {
		return nil, 0, err
	}
	if len(answers) != len(requests) {
		return nil, 0, fmt.Errorf("instance answered %d of %d members", len(answers), len(requests))
	}
	micros, _ := strconv.ParseInt(response.Header.Get(frame.ExecHeader), 10, 64)
	return answers, time.Duration(micros) * time.Microsecond, nil
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
