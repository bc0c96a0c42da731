package queue

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Message is one message in hand.
type Message struct {
	// Key is the subject without the pool's prefix. It stands for a function.
	Key string
	// Data is the message's content, Header its headers in the queue.
	Data   []byte
	Header nats.Header
	// Sequence is its number in the stream.
	Sequence uint64
	// Deliveries counts its deliveries, including this one.
	Deliveries int
	// Stored is the time when it was stored.
	Stored time.Time

	worker *worker
	// reply is the subject for acknowledgements.
	reply string
	// size is the number of bytes of the budget that it holds, data those of Data and its decoded body.
	size, data int64
	once       sync.Once
}

// Executed says that the execution is over and only the result is still to be delivered.
// Another message may then be executed in its place.
func (m *Message) Executed() { m.once.Do(m.worker.executed) }

// Hold takes n more bytes of the budget for the message, until [Message.Release] or its end. It
// reports whether its function may hold them.
func (m *Message) Hold(n int64) bool { return m.worker.hold(m, n) }

// Release gives n bytes back that Hold has taken.
func (m *Message) Release(n int64) {
	m.worker.release(m, n)
	m.worker.pool.budget.give(n)
}

// Forget drops Data and gives back what it and its decoded body hold. The stream still has it
// ([Broker.Stored]).
func (m *Message) Forget() {
	m.Data = nil
	m.Release(m.data)
	m.data = 0
	wakeUp(m.worker.freed)
}

// Verdict says what becomes of a message.
type Verdict struct {
	// Keep leaves the message in the queue, to be delivered again after Delay. Without
	// Keep, the message is removed.
	Keep  bool
	Delay time.Duration
}

// checksum returns the FNV-1a hash of s.
func checksum(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return h.Sum64()
}

var errReply = errors.New("malformed acknowledgement subject")

// parse reads the message's numbers and times from its reply subject:
// $JS.ACK[.domain.account].stream.consumer.deliveries.sequence.consumer sequence.ns.pending[.token].
func parse(m *nats.Msg) (sequence uint64, deliveries int, stored time.Time, err error) {
	tokens := strings.Split(m.Reply, ".")
	if len(tokens) < 9 || tokens[0] != "$JS" || tokens[1] != "ACK" {
		return 0, 0, time.Time{}, fmt.Errorf("%w: %q", errReply, m.Reply)
	}
	rest := tokens[4:]
	if len(tokens) > 9 {
		rest = tokens[6:]
	}
	if len(rest) < 4 {
		return 0, 0, time.Time{}, fmt.Errorf("%w: %q", errReply, m.Reply)
	}
	deliveries, err1 := strconv.Atoi(rest[0])
	sequence, err2 := strconv.ParseUint(rest[1], 10, 64)
	ns, err3 := strconv.ParseInt(rest[3], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return 0, 0, time.Time{}, fmt.Errorf("%w: %w", errReply, err)
	}
	return sequence, deliveries, time.Unix(0, ns), nil
}

// The acknowledgements of JetStream.
var (
	ackDone     = []byte("+ACK")
	ackProgress = []byte("+WPI")
)

// ackLater returns the acknowledgement that asks for another delivery after delay.
func ackLater(delay time.Duration) []byte {
	if delay <= 0 {
		return []byte("-NAK")
	}
	return fmt.Appendf(nil, `-NAK {"delay": %d}`, delay.Nanoseconds())
}
