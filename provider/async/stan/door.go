package stan

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/provider/web"
)

// What a guest may use. A guest holds at most maxPayload for the message that it is
// sending, maxFlyingBytes for those that are being stored, and twice maxPending for
// answers: 1 + 4 + 2 × 0.5 MiB. So all 16 guests hold at most 96 MiB. A gateway holds one
// connection.
const (
	maxGuests = 16
	// maxPayload is a NATS server's default. The gateway takes bodies of 256 kB, which
	// is 342 kB in a message, with at most 60 KiB of headers that a function gets.
	maxPayload = 1 << 20
	// maxSubscriptions is four times what the gateway's library needs.
	maxSubscriptions = 16
	// maxLine is the longest line without a message, in bytes.
	maxLine = 4 << 10
	// maxFlying and maxFlyingBytes bound the messages of a guest that are being stored.
	// Beyond that, nothing more is read from the guest until one is stored.
	maxFlying      = 256
	maxFlyingBytes = 4 << 20
	// maxPending is the most bytes of answers that may wait for a guest to read them. A
	// guest that lets more wait, or does not read for writePatience, is cut off.
	maxPending    = 512 << 10
	writePatience = 10 * time.Second
	// closePatience is how long a guest may take to read its answers when the Door closes.
	closePatience = time.Second
	// greetPatience is how long a guest may take to introduce itself.
	greetPatience = 5 * time.Second
	// pingInterval is the time between two questions whether a guest is still there. It
	// is cut off when it has not answered maxPings of them.
	pingInterval = 30 * time.Second
	maxPings     = 2
)

// Door is a listener for guests. It is safe for concurrent use.
type Door struct {
	*service
	listener net.Listener
	// last is the number of the last guest.
	last atomic.Int64

	mu      sync.Mutex
	guests  map[*guest]struct{}
	closed  bool
	stop    chan struct{}
	running sync.WaitGroup
}

// CheckAddress returns nil if a Door can be opened at "HOST:PORT". Otherwise the error
// says what is wrong with --nats-listen. It waits a moment for an address that is taken.
func CheckAddress(address string) error {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--nats-listen is %q: it must be HOST:PORT, for example 127.0.0.1:4222, or %s: %w", address, Off, err)
	}
	if n, err := strconv.Atoi(text); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("--nats-listen is %q: the port must be a number from 0 to 65535", address)
	}
	return taken(web.CheckFree(address))
}

// taken explains why the address cannot be listened at.
func taken(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the queue cannot listen for the gateway: %w; stop the program that listens there, or set --nats-listen to another address or %s", err, Off)
}

// Listen opens a Door at "HOST:PORT". Call it when messages can be taken: a client that
// cannot connect tries again, but one that connects too early waits for an answer in vain.
func Listen(address string, o Options) (*Door, error) {
	s, err := newService(o)
	if err != nil {
		return nil, err
	}
	l, err := web.Listen(address)
	if err != nil {
		return nil, taken(err)
	}
	d := newDoor(s)
	d.listener = l
	d.running.Go(d.accept)
	return d, nil
}

func newDoor(s *service) *Door {
	return &Door{service: s, guests: map[*guest]struct{}{}, stop: make(chan struct{})}
}

// Address returns the listener's "HOST:PORT".
func (d *Door) Address() string { return d.listener.Addr().String() }

// Close cuts off all guests and stops listening. Before, it writes the answers that have
// been given, for at most closePatience.
func (d *Door) Close() {
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		close(d.stop)
	}
	for g := range d.guests {
		g.finish()
	}
	d.mu.Unlock()
	if d.listener != nil {
		d.listener.Close()
	}
	d.running.Wait()
}

// accept lets guests in until the Door closes.
func (d *Door) accept() {
	for {
		conn, err := d.listener.Accept()
		switch {
		case err == nil:
			d.admit(conn)
			continue
		case d.isClosed():
			return
		}
		// Too many files are open, for example.
		d.log.Error().Err(err).Msg("no gateway can connect to the queue")
		select {
		case <-d.stop:
			return
		case <-time.After(acceptPause):
		}
	}
}

// acceptPause is the time between two tries to accept a connection.
const acceptPause = 100 * time.Millisecond

func (d *Door) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// admit serves a connection, or refuses it if there are maxGuests.
func (d *Door) admit(conn net.Conn) {
	g := newGuest(d, conn)
	d.mu.Lock()
	full := d.closed || len(d.guests) >= maxGuests
	if !full {
		d.guests[g] = struct{}{}
		d.running.Go(g.serve)
		d.running.Go(g.write)
	}
	d.mu.Unlock()
	if full {
		d.log.Warn().Stringer("address", conn.RemoteAddr()).Int("limit", maxGuests).Msg("a connection to the queue was refused; too many are open")
		// A new connection has room for so few bytes; the deadline is for any other.
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = conn.Write(append(d.greeting(), failure(errGuests)...))
		conn.Close()
	}
}

// leave forgets a guest.
func (d *Door) leave(g *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.guests, g)
}

// greeting is the first line to a guest. Headers are off: a gateway sends none.
func (d *Door) greeting() []byte {
	info, _ := json.Marshal(map[string]any{ // A map of numbers and texts can be written.
		"server_id": "faas-infer", "server_name": "faas-infer", "version": "2.9.0", "proto": 1, "headers": false,
		"max_payload": maxPayload, "client_id": d.last.Add(1),
	})
	return fmt.Appendf(nil, "INFO %s\r\n", info)
}

// failure is the line that tells a guest of an error.
func failure(err error) []byte { return fmt.Appendf(nil, "-ERR '%v'\r\n", err) }
