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
	// Key is what follows the pool's subject: a function.
	Key string
	// Data is the message.
	Data []byte
	// Sequence is its number in the stream.
	Sequence uint64
	// Deliveries is how often it was handed out, this time included.
	Deliveries int
	// Stored is when it was stored.
	Stored time.Time

	worker *worker
	reply  string
	// size is how many bytes of the budget it holds.
	size int64
	once sync.Once
}

// Executed says that the execution is over and only the result is still to be
// delivered, of so many bytes: another message may be executed in its place.
func (m *Message) Executed(result int) {
	m.once.Do(func() { m.worker.executed(m, int64(result)) })
}

// Verdict is what becomes of a message.
type Verdict struct {
	// Keep leaves it in the queue, to be handed out again after Delay;
	// otherwise it is done with and removed.
	Keep  bool
	Delay time.Duration
}

// checksum is FNV-1a.
func checksum(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return h.Sum64()
}

var errReply = errors.New("malformed acknowledgement subject")

// parse reads what the server tells of a message in its reply subject:
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

func ackLater(delay time.Duration) []byte {
	if delay <= 0 {
		return []byte("-NAK")
	}
	return fmt.Appendf(nil, `-NAK {"delay": %d}`, delay.Nanoseconds())
}
