package stan

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// guest is one connection. One goroutine reads from it and one writes to it.
type guest struct {
	door *Door
	conn net.Conn
	// gone is closed when the connection is cut.
	gone chan struct{}
	once sync.Once
	// wake tells the writer that there is something to write, landed the reader that a
	// message was stored.
	wake, landed chan struct{}

	// Only the reader uses these. payload is the buffer for messages.
	in      *bufio.Reader
	payload []byte
	greeted bool
	verbose bool

	mu            sync.Mutex
	subscriptions map[string]*subscription
	// out are the bytes that the writer has not taken yet. ended says that it closes the
	// connection after them.
	out   []byte
	ended bool
	// patience is how long the guest may take to read what is written to it.
	patience time.Duration
	// pings is the number of unanswered questions whether the guest is still there.
	pings int
	// flying and flyingBytes count the messages that are being stored.
	flying, flyingBytes int
}

// subscription is a subject whose messages a guest receives, the next left ones, or all if
// left is negative.
type subscription struct {
	subject string
	left    int
}

func newGuest(d *Door, conn net.Conn) *guest {
	return &guest{
		door: d, conn: conn, in: bufio.NewReaderSize(conn, maxLine), gone: make(chan struct{}),
		wake: make(chan struct{}, 1), landed: make(chan struct{}, 1), subscriptions: map[string]*subscription{},
		patience: writePatience,
	}
}

// cut closes the connection.
func (g *guest) cut() {
	g.once.Do(func() {
		close(g.gone)
		g.conn.Close()
	})
}

// wakeUp sends a signal, unless one is pending already.
func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// send gives bytes to the writer. It cuts the guest off if it does not read.
func (g *guest) send(parts ...[]byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sendLocked(parts...)
}

func (g *guest) sendLocked(parts ...[]byte) {
	for _, p := range parts {
		g.out = append(g.out, p...)
	}
	if len(g.out) > maxPending {
		g.slow()
		return
	}
	wakeUp(g.wake)
}

// slow cuts off a guest that does not read.
func (g *guest) slow() {
	g.out = nil
	select {
	case <-g.gone:
	default:
		g.door.log.Warn().Stringer("address", g.conn.RemoteAddr()).Msg("a connection to the queue was closed, because its client does not read the answers")
	}
	g.cut()
}

// write writes what is sent until the connection is cut.
func (g *guest) write() {
	defer g.cut()
	pings := time.Tick(pingInterval)
	var spare []byte
	for {
		select {
		case <-g.gone:
			return
		case <-pings:
			g.ask()
		case <-g.wake:
		}
		for {
			g.mu.Lock()
			out, ended := g.out, g.ended
			g.out = spare[:0]
			// It fails if the connection is gone; then so does writing.
			_ = g.conn.SetWriteDeadline(time.Now().Add(g.patience))
			g.mu.Unlock()
			spare = out
			if len(out) == 0 {
				if ended {
					return
				}
				break
			}
			if _, err := g.conn.Write(out); err != nil {
				var timeout net.Error
				if errors.As(err, &timeout) && timeout.Timeout() {
					g.mu.Lock()
					g.slow()
					g.mu.Unlock()
				}
				return
			}
		}
	}
}

// ask asks whether the guest is still there, and cuts it off if it did not answer before.
func (g *guest) ask() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pings++; g.pings > maxPings {
		g.endLocked(errStale)
		return
	}
	g.sendLocked([]byte("PING\r\n"))
}

// end tells the guest why its connection ends; the writer closes it.
func (g *guest) end(why error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endLocked(why)
}

// finish lets the writer write what is sent, and then close the connection.
func (g *guest) finish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended, g.patience = true, closePatience
	_ = g.conn.SetWriteDeadline(time.Now().Add(closePatience)) // It fails if the connection is gone.
	wakeUp(g.wake)
}

func (g *guest) endLocked(why error) {
	g.ended = true
	g.sendLocked(failure(why))
}

// serve reads from the connection until it ends.
func (g *guest) serve() {
	defer g.door.leave(g)
	g.send(g.door.greeting())
	_ = g.conn.SetReadDeadline(time.Now().Add(greetPatience))
	err := g.read()
	if errors.Is(err, errGone) {
		g.cut()
		return
	}
	g.end(err)
	<-g.gone
}

// errGone says that there is no connection any more.
var errGone = errors.New("the connection is gone")

// read handles the guest's lines until one is wrong.
func (g *guest) read() error {
	for {
		text, err := g.in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return errTooLong
		case err != nil && !g.greeted && isTimeout(err):
			return errSilent
		case err != nil:
			return errGone
		}
		l, err := parse(text)
		if err != nil {
			return err
		}
		if err := g.handle(l); err != nil {
			return err
		}
		if g.verbose && l.word != "PING" && l.word != "PONG" {
			g.send([]byte("+OK\r\n"))
		}
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// handle handles one line.
func (g *guest) handle(l line) error {
	if !g.greeted && l.word != "CONNECT" && l.word != "PING" {
		return errUnknown
	}
	switch l.word {
	case "CONNECT":
		g.greeted, g.verbose = true, l.verbose
		_ = g.conn.SetReadDeadline(time.Time{}) // It fails if the connection is gone; then so does reading.
	case "PING":
		g.send([]byte("PONG\r\n"))
	case "PONG":
		g.mu.Lock()
		g.pings = 0
		g.mu.Unlock()
	case "SUB":
		g.subscribe(l)
	case "UNSUB":
		g.unsubscribe(l)
	case "PUB":
		return g.publish(l)
	}
	return nil
}

func (g *guest) subscribe(l line) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !own(l.subject):
		g.sendLocked(failure(errForbidden("Subscription", l.subject)))
	case g.subscriptions[l.id] == nil && len(g.subscriptions) >= maxSubscriptions:
		g.sendLocked(failure(errSubscriptions))
	default:
		g.subscriptions[l.id] = &subscription{subject: l.subject, left: -1}
	}
}

func (g *guest) unsubscribe(l line) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.subscriptions[l.id]; s != nil && l.number > 0 {
		s.left = l.number
		return
	}
	delete(g.subscriptions, l.id)
}

// publish reads a message and has it answered.
func (g *guest) publish(l line) error {
	if l.number > maxPayload {
		return errPayload
	}
	if g.door.kind(l.subject) == "" {
		g.send(failure(errForbidden("Publish", l.subject)))
		if _, err := g.in.Discard(l.number); err != nil {
			return errGone
		}
		return g.endOfMessage()
	}
	if !g.launch(l.number) {
		return errGone
	}
	data, err := g.message(l.number)
	if err != nil {
		return err
	}
	g.door.answer(l.subject, data, func(answer []byte) { g.land(l.number, l.reply, answer) })
	return nil
}

// keptPayload is the largest buffer that a guest keeps between two messages.
const keptPayload = 64 << 10

// message reads a message of n bytes. The result is valid until the next call.
func (g *guest) message(n int) ([]byte, error) {
	data := g.payload
	if cap(data) < n {
		data = make([]byte, n)
	}
	data = data[:n]
	if n <= keptPayload {
		g.payload = data
	}
	if _, err := io.ReadFull(g.in, data); err != nil {
		return nil, errGone
	}
	return data, g.endOfMessage()
}

// endOfMessage reads the end of the line after a message.
func (g *guest) endOfMessage() error {
	var end [2]byte
	if _, err := io.ReadFull(g.in, end[:]); err != nil {
		return errGone
	}
	if string(end[:]) != "\r\n" {
		return errParse
	}
	return nil
}

// launch waits until another message of n bytes may be stored. It returns false if the
// connection is gone.
func (g *guest) launch(n int) bool {
	for {
		g.mu.Lock()
		ok := g.flying < maxFlying && g.flyingBytes+n <= maxFlyingBytes
		if ok {
			g.flying++
			g.flyingBytes += n
		}
		g.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-g.landed:
		case <-g.gone:
			return false
		}
	}
}

// land sends the answer to a message of n bytes. answer is nil if there is none.
func (g *guest) land(n int, reply string, answer []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flying--
	g.flyingBytes -= n
	wakeUp(g.landed)
	if answer == nil || reply == "" {
		return
	}
	for id, s := range g.subscriptions {
		if !covers(s.subject, reply) {
			continue
		}
		g.sendLocked(fmt.Appendf(nil, "MSG %s %s %d\r\n", reply, id, len(answer)), answer, []byte("\r\n"))
		if s.left > 0 {
			if s.left--; s.left == 0 {
				delete(g.subscriptions, id)
			}
		}
	}
}
