package dispatch

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/health/probe"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/web"
)

// link holds the kept connections to one instance. One exchange at a time uses a
// connection. The goroutine that leads a batch writes and reads itself; net/http's
// client would pass every exchange through two goroutines.
type link struct {
	network, address string
	dial             func(ctx context.Context, network, address string) (net.Conn, error)
	hold             func(n int64) (release func(), err error)

	mu      sync.Mutex
	timeout time.Duration
	idle    []*connection
	// single: connections are closed after one exchange. closed: no new connections are
	// made.
	single, closed bool
}

// refusedError says that an instance answered a whole exchange with a status other
// than 200: it is healthy, but refuses the batch.
type refusedError struct{ status string }

func (e *refusedError) Error() string { return "the instance answered a batch with " + e.status }

// unheldError says that there is no memory for a batch's answers.
type unheldError struct{ error }

// errUnreached says that no connection could be made, so the instance has certainly
// not received the batch.
var errUnreached = errors.New("connect to instance")

// harmless reports whether an exchange failed through no fault of the instance, and
// returns the error for its members.
func harmless(err error) (failure error, ok bool) {
	var (
		refused *refusedError
		unheld  unheldError
		known   *web.Error
	)
	switch {
	case errors.Is(err, errAbandoned):
		return context.Canceled, true
	case errors.As(err, &refused):
		return ErrRefused, true
	case errors.As(err, &unheld) && errors.As(unheld.error, &known):
		return known, true
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.ENOMEM),
		errors.Is(err, syscall.EADDRNOTAVAIL): // The provider has no free port.
		return ErrExhausted, true
	}
	return nil, false
}

type connection struct {
	net.Conn
	reader *bufio.Reader
	// deadline is the one that is set: setting it costs more than reading a short answer.
	// end is the one for reading the rest of an answer, zero before its beginning.
	deadline, end time.Time
}

// Close closes the connection at once.
func (c *connection) Close() error { return probe.CloseNow(c.Conn) }

// wait sets a deadline for a wait that may end at until or before, but not at once: an
// earlier deadline may stay from the exchange before.
func (c *connection) wait(until time.Time) error {
	if time.Now().Before(c.deadline) && !c.deadline.After(until) {
		return nil
	}
	return c.set(until)
}

func (c *connection) set(deadline time.Time) error {
	c.deadline = deadline
	return c.SetDeadline(deadline)
}

// Read implements io.Reader for the connection's reader. Mostly an answer is there as a
// whole when it begins, so that nothing is left to read.
func (c *connection) Read(b []byte) (int, error) {
	if !c.end.IsZero() && !c.end.Equal(c.deadline) {
		if err := c.set(c.end); err != nil {
			return 0, err
		}
	}
	return c.Conn.Read(b)
}

// counted is the size of an answer in bytes above which it is counted while it is read.
const counted = 64 << 10

// maxReply bounds an instance's answer to one batch, in bytes.
const maxReply = 1 << 30

// taken holds the times of an exchange. time runs from sending the batch to its
// answer, less the wait behind another batch in the instance. It covers transport,
// reading the bodies, the engine and writing the answers: a request experiences it,
// and the instance is busy for it. beside is the CPU time that the instance used
// outside its engine. reported: the engine ran for the batch.
type taken struct {
	time, beside time.Duration
	reported     bool
	// elements is the mean number of elements of a request's row, 0 if all rows have one size.
	elements int64
	// rows is the mean number of rows of a request, 0 if the instance does not report it.
	rows float64
	// engine is the engine's time and waited the wait in the instance, 0 if it reports none.
	engine, waited time.Duration
}

// exchange is a batch, or a part of one, on its way to an instance and back.
type exchange struct {
	*connection
	link    *link
	members int
	began   time.Time
	// unsent is the part of the batch that has not been written yet.
	unsent net.Buffers
	// end is when the instance counts as lost. With TLS, the batch must be written before writeBy.
	end, writeBy time.Time
}

// begin prepares an exchange; [exchange.await] sends it. within is the time that is left
// for each member. Connecting may take until a time. once: no member may run twice.
func (l *link) begin(calls []*call, within []time.Duration, until time.Time, once bool) (*exchange, error) {
	c, timeout, err := l.get(until)
	if err != nil {
		return nil, err
	}
	requests := make([]frame.Request, len(calls))
	for i := range calls {
		requests[i] = *calls[i].request
	}
	body, length := frame.EncodeRequests(requests)
	request := make([]byte, 0, 192+8*len(within))
	request = append(request, "POST "+frame.Path+" HTTP/1.1\r\nHost: instance\r\nContent-Type: "+frame.ContentType+"\r\n"...)
	request = append(request, frame.WithinHeader+": "...)
	request = frame.AppendWithin(request, within)
	if once {
		request = append(request, "\r\n"+frame.OnceHeader+": 1"...)
	}
	if parts := frame.FormatParts(requests); parts != "" {
		request = append(request, "\r\n"+frame.PartsHeader+": "+parts...)
	}
	request = append(request, "\r\nContent-Length: "...)
	request = strconv.AppendInt(request, length, 10)
	request = append(request, "\r\n\r\n"...)
	now := time.Now()
	end := now.Add(timeout)
	return &exchange{
		connection: c, link: l, members: len(calls), began: now, unsent: gathered(c.Conn, append(net.Buffers{request}, body...)),
		end: end, writeBy: end,
	}, nil
}

// last lets the exchange take as long as its batch may that is predicted to take predicted: the link's time is for a full
// batch of the planned size, and a request may have many rows.
func (x *exchange) last(predicted time.Duration) {
	if end := x.began.Add(patienceTimes * predicted); end.After(x.end) {
		x.end, x.writeBy = end, end
	}
}

// gathered returns what to write to a connection. A socket takes all buffers with one call. TLS would
// make a record of each, and a call for it, so there they become one buffer.
func gathered(conn net.Conn, buffers net.Buffers) net.Buffers {
	if !isSecure(conn) {
		return buffers
	}
	return net.Buffers{bytes.Join(buffers, nil)}
}

func isSecure(conn net.Conn) bool {
	_, ok := conn.(*tls.Conn)
	return ok
}

// sent reports whether the whole batch has been written: the requests' bodies are not
// needed any more.
func (x *exchange) sent() bool { return len(x.unsent) == 0 }

// await sends the batch and waits until its answer begins, at most until a time. It can be
// called again after that.
func (x *exchange) await(until time.Time) (begins bool, err error) {
	whole := !x.sent() && isSecure(x.Conn)
	if whole { // A write that is broken off ends a connection with TLS.
		if err := x.set(x.writeBy); err != nil {
			return false, err
		}
	} else if err := x.wait(until); err != nil {
		return false, err
	}
	if !x.sent() {
		switch _, err := web.WriteBuffers(x.Conn, &x.unsent); {
		case whole && errors.Is(err, os.ErrDeadlineExceeded):
			return false, errStuck
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false, nil
		case err != nil:
			// An instance may refuse a batch before it has read all of it.
			var refused *refusedError
			if _, why := x.readHead(); errors.As(why, &refused) {
				return false, why
			}
			return false, fmt.Errorf("send batch: %w", err)
		}
	}
	if whole {
		if err := x.set(until); err != nil {
			return false, err
		}
	}
	_, err = x.reader.Peek(1)
	if errors.Is(err, os.ErrDeadlineExceeded) && time.Since(until) > minGrace {
		// This process itself was held back, by SIGSTOP or a pause of its machine. The answer may
		// have come meanwhile.
		if err := x.set(time.Now().Add(minGrace)); err != nil {
			return false, err
		}
		_, err = x.reader.Peek(1)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read batch answer: %w", err)
	}
	return true, nil
}

// finish reads the answers, in the order of the requests, at most until a time, and returns
// the connection to the link. takers get parts of answers, which take longer.
func (x *exchange) finish(until time.Time, takers *takers) (responses []frame.Response, took taken, err error) {
	responses, answer, err := x.read(until, takers)
	if err != nil || answer.last {
		x.Close()
	} else {
		x.link.put(x.connection)
	}
	total := time.Since(x.began)
	return responses, taken{
		time: max(answer.exec, total-answer.waited), beside: answer.beside, reported: answer.exec > 0, elements: answer.elements, rows: answer.rows,
		engine: answer.exec, waited: answer.waited,
	}, err
}

// read reads the answers, at most until a time.
func (x *exchange) read(until time.Time, takers *takers) ([]frame.Response, head, error) {
	x.connection.end = until
	defer func() { x.connection.end = time.Time{} }()
	answer, err := x.readHead()
	var from io.Reader = x.reader
	if err == nil && answer.parts {
		from, answer, err = x.readParts(takers)
	}
	if err != nil {
		return nil, head{}, fmt.Errorf("read batch answer: %w", err)
	}
	if x.link.hold != nil && answer.length > counted {
		release, err := x.link.hold(answer.length)
		if err != nil {
			return nil, head{}, unheldError{err}
		}
		defer release() // Each member's caller counts its own answer from here.
	}
	answers, err := frame.ReadResponses(from, answer.length)
	if err != nil {
		return nil, head{}, fmt.Errorf("read batch answer: %w", err)
	}
	if len(answers) != x.members {
		return nil, head{}, fmt.Errorf("instance answered %d of %d members", len(answers), x.members)
	}
	return answers, answer, nil
}

// head is the part of an answer's status line and headers that the dispatcher uses.
type head struct {
	length int64
	exec   time.Duration
	// waited is how long the batch waited for the one before it; beside is the CPU
	// time that the instance used outside the engine.
	waited, beside time.Duration
	// elements and rows are those of taken.
	elements int64
	rows     float64
	// last: the instance closes the connection after this answer.
	last bool
	// parts: parts of answers come first, and then the rest of the head.
	parts bool
}

// readHead reads an answer's head. It understands only the HTTP/1.1 that our own
// instance server uses: status 200 and a body with Content-Length. Anything else is
// an error, and the connection is closed.
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
				return h, &refusedError{status: string(line)}
			}
			continue
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		if err := h.set(name, value); err != nil {
			return h, err
		}
	}
	if h.parts {
		return h, nil
	}
	if h.length < 0 || h.length > maxReply {
		return h, fmt.Errorf("the instance's answer has a length of %d bytes", h.length)
	}
	return h, nil
}

// set takes in a header of an answer. Those that the dispatcher does not use are nothing.
func (h *head) set(name, value []byte) (err error) {
	switch {
	case bytes.EqualFold(name, []byte("Content-Length")):
		if h.length, err = strconv.ParseInt(string(value), 10, 64); err != nil {
			return fmt.Errorf("the instance's Content-Length: %w", err)
		}
	case bytes.EqualFold(name, []byte(frame.PartsHeader)):
		h.parts = true
	case bytes.EqualFold(name, []byte("Connection")):
		h.last = bytes.EqualFold(value, []byte("close"))
	case bytes.EqualFold(name, []byte(frame.ExecHeader)):
		if h.exec, err = micros(frame.ExecHeader, value); err != nil {
			return err
		}
	case bytes.EqualFold(name, []byte(frame.BesideHeader)):
		if h.beside, err = micros(frame.BesideHeader, value); err != nil {
			return err
		}
	case bytes.EqualFold(name, []byte(frame.WaitHeader)):
		if h.waited, err = micros(frame.WaitHeader, value); err != nil {
			return err
		}
	case bytes.EqualFold(name, []byte(frame.ElementsHeader)):
		if h.elements, err = strconv.ParseInt(string(value), 10, 64); err != nil {
			return fmt.Errorf("the instance's %s: %w", frame.ElementsHeader, err)
		}
	case bytes.EqualFold(name, []byte(frame.RowsHeader)):
		if h.rows, err = strconv.ParseFloat(string(value), 64); err != nil || !(h.rows >= 0 && h.rows <= maxReported) {
			return fmt.Errorf("the instance's %s is %q; it must be the mean number of rows of a request", frame.RowsHeader, value)
		}
	}
	return nil
}

// maxReported is the largest valid mean number of rows of a request.
const maxReported = 1 << 30

// micros parses a header value in whole microseconds.
func micros(header string, value []byte) (time.Duration, error) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the instance's %s: %w", header, err)
	}
	return time.Duration(n) * time.Microsecond, nil
}

// connectTimeout bounds connecting to an instance.
const connectTimeout = 5 * time.Second

// get returns a connection and the maximum time of an exchange on it. If connecting takes
// until a time before connectTimeout, the error wraps errStuck.
func (l *link) get(until time.Time) (*connection, time.Duration, error) {
	l.mu.Lock()
	timeout := l.timeout
	if l.closed { // Its instance has exited.
		l.mu.Unlock()
		return nil, 0, fmt.Errorf("%w: %w", errUnreached, net.ErrClosed)
	}
	if n := len(l.idle); n > 0 {
		c := l.idle[n-1]
		l.idle = l.idle[:n-1]
		l.mu.Unlock()
		return c, timeout, nil
	}
	l.mu.Unlock()
	began := time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	conn, err := l.dial(ctx, l.network, l.address)
	switch {
	case err == nil:
	case ctx.Err() != nil && time.Since(began) < connectTimeout:
		return nil, 0, fmt.Errorf("%w: %w: %w", errUnreached, errStuck, err)
	default:
		return nil, 0, fmt.Errorf("%w: %w", errUnreached, err)
	}
	c := &connection{Conn: web.NewSocket(conn)}
	c.reader = bufio.NewReaderSize(c, 16<<10)
	return c, timeout, nil
}

func (l *link) put(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.single || l.closed {
		c.Close()
		return
	}
	l.idle = append(l.idle, c)
}

func (l *link) setTimeout(timeout time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timeout = timeout
}

// keepNone closes the idle connections and keeps no more. It does not disturb
// exchanges in flight or about to begin.
func (l *link) keepNone() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.single = true
	for _, c := range l.idle {
		c.Close()
	}
	l.idle = nil
}

// close does what keepNone does and refuses new connections.
func (l *link) close() {
	l.keepNone()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// alive asks for the instance's health on a new connection.
func (l *link) alive(within time.Duration) error {
	return probe.Alive(l.dial, l.network, l.address, within)
}
