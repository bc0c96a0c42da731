// Package queue is where queued invocations lie: two JetStream streams, in a
// NATS server inside this process or in one that runs elsewhere.
//
// # What survives what
//
// A message that was acknowledged to its publisher has been written to the
// stream's file (write(2)), so it survives the end of this process at any
// instant, kill -9 included: the kernel holds it. Files are synced to the disk
// every Options.Sync; what was acknowledged within that time before a power
// failure may be lost. Options.SyncAlways syncs before each acknowledgement
// instead, at the price of one disk write per message.
//
// A stream file that ends in the middle of a message (the machine lost its power
// while it was written) is cut back to its last whole message when the server
// starts. A stream whose description is damaged is not opened, and Open says which
// directory to move away.
//
// # A full disk
//
// JetStream stops a stream whose file could not be written, for good. So nothing
// is taken any more while there is little room ([Broker.Usable] says so); and
// where a write has failed all the same, the embedded server is replaced by
// another one once there is room again. Clients connect to that by themselves.
//
// # Who may do what
//
// Clients that connect over the network may speak NATS Streaming's publishing
// side and nothing else: they can neither read the queue nor change the streams.
package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

// Off is the value of Options.Listen for a server that listens nowhere.
const Off = "off"

// DefaultSync is how often files are synced to the disk.
const DefaultSync = 10 * time.Second

// MaxPayload is the largest message in bytes, headers and subject included: no
// JetStream file takes a larger one.
const MaxPayload = 32 << 20

// BrokerOptions are what a broker works with.
type BrokerOptions struct {
	// Dir is the directory of the embedded server's streams.
	Dir string
	// Listen is the embedded server's address, "" or Off for none: it is then
	// reached from within this process only.
	Listen string
	// URL is an external NATS server's, with JetStream on; then no server is
	// embedded, and Dir and Listen mean nothing. Several are separated by
	// commas.
	URL string
	// Sync is how often files are synced, DefaultSync if 0; SyncAlways syncs
	// each message. For the embedded server only.
	Sync       time.Duration
	SyncAlways bool
	// MaxQueued and MaxDead are how many bytes the two streams may take on the
	// disk.
	MaxQueued, MaxDead int64
	Logger             zerolog.Logger
}

// Broker is a connection to the streams. It is safe for concurrent use.
type Broker struct {
	options  BrokerOptions
	embedded *embedded
	log      zerolog.Logger

	// publishing refuses at once while there is no connection, so that nobody
	// is told "not taken" of what is then sent after all; settling keeps what
	// was sent meanwhile, so that no acknowledgement is lost.
	publishing, settling *nats.Conn
	js                   jetstream.JetStream

	// trouble is why nothing can be taken now; nil if all is well.
	trouble atomic.Pointer[error]
	check   chan struct{}
	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// OpenBroker starts the embedded server or connects to the external one. That one may
// be away: Open returns after a few seconds at most, and connecting goes on for
// ever. A problem that waiting cannot mend is an error: a port that is taken, a directory
// that cannot be written, a URL that is none, credentials that are refused, a
// server without JetStream.
func OpenBroker(ctx context.Context, o BrokerOptions) (_ *Broker, err error) {
	b := &Broker{options: o, log: o.Logger, check: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if o.URL == "" {
		if b.embedded, err = startEmbedded(ctx, o, b.Check); err != nil {
			return nil, err
		}
	}
	if err := b.connect(); err != nil {
		return nil, err
	}
	if b.js, err = jetstream.New(b.publishing, jetstream.WithPublishAsyncTimeout(publishTimeout), jetstream.WithPublishAsyncMaxPending(maxPublishing)); err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	b.setTrouble(errStarting)
	if err := b.firstStreams(ctx); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.stopped.Go(func() { b.maintain(run) })
	return b, nil
}

// publishTimeout is how long a message may take to be written; mostPublishing is
// how many may be on their way.
const (
	publishTimeout = 5 * time.Second
	maxPublishing  = 8192
)

var errStarting = errors.New("the queue is starting")

// JetStream is for publishing and for looking after the streams.
func (b *Broker) JetStream() jetstream.JetStream { return b.js }

// Publishing is the connection that refuses at once while the server is away.
func (b *Broker) Publishing() *nats.Conn { return b.publishing }

// Settling is the connection for taking messages and acknowledging them. What is
// sent while the server is away is sent when it is back.
func (b *Broker) Settling() *nats.Conn { return b.settling }

// MaxPayload is the largest message in bytes that this server takes.
func (b *Broker) MaxPayload() int64 {
	if n := b.publishing.MaxPayload(); n > 0 {
		return min(n, MaxPayload)
	}
	return MaxPayload
}

// Listen lets clients connect to the embedded server over the network. Before
// it, one that publishes would wait in vain for an answer, where one that is
// refused tries again. For an external server it does nothing.
func (b *Broker) Listen() error {
	if b.embedded == nil {
		return nil
	}
	return b.embedded.listen()
}

// Address is the server's "host:port", the first one's of several; "" if the
// embedded server listens nowhere (yet).
func (b *Broker) Address() string {
	if b.embedded == nil {
		return hostPort(b.options.URL)
	}
	return b.embedded.address()
}

// URL is the external server's, without its password.
func (b *Broker) URL() string { return redact(b.options.URL) }

// Embedded reports whether the server runs in this process.
func (b *Broker) Embedded() bool { return b.embedded != nil }

// Usable is nil if messages can be taken now, or says why not.
func (b *Broker) Usable() error {
	if p := b.trouble.Load(); p != nil && *p != nil {
		return *p
	}
	if b.embedded != nil {
		return b.embedded.room()
	}
	return nil
}

// Check asks the broker to look after itself now: a message could not be
// published.
func (b *Broker) Check() {
	select {
	case b.check <- struct{}{}:
	default:
	}
}

func (b *Broker) setTrouble(err error) { b.trouble.Store(&err) }

// Close ends the connections and the embedded server. Messages that are in
// nobody's hands stay in the streams.
func (b *Broker) Close() {
	if b.stop != nil {
		b.stop()
		b.stopped.Wait()
	}
	b.close()
}

func (b *Broker) close() {
	for _, c := range []*nats.Conn{b.publishing, b.settling} {
		if c != nil {
			c.Close()
		}
	}
	if b.embedded != nil {
		b.embedded.close()
	}
}
