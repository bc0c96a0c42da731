// Package queue stores queued invocations in two JetStream streams, in a NATS server
// inside this process or an external one ([Broker]). It hands the messages of each
// function to a handler ([Pool]). It does not execute requests, which package async does,
// nor answer the gateway, which package stan does. Begin reading at [OpenBroker] and
// [StartPool].
//
// # What survives a crash
//
// A message is acknowledged to its publisher after it has been written to the stream's
// file (write(2)). The kernel then holds it, so it survives the end of this process at
// any instant, even kill -9. Files are synced to the disk every BrokerOptions.Sync. A
// power failure may lose the messages acknowledged since the last sync.
// BrokerOptions.SyncAlways syncs before each acknowledgement instead, at the price of one
// disk write per message.
//
// After a power failure, a stream file may end in the middle of a message. The server
// cuts it back to its last whole message when it starts. It does not open a stream whose
// description is damaged, and OpenBroker says which directory to move away.
//
// # A full disk
//
// If a write to a stream's file fails, JetStream stops that stream for good. Messages are
// therefore refused while the disk is nearly full ([Broker.Usable] says so). If a write
// fails nevertheless, the embedded server is replaced by another one once there is room
// again.
//
// # Permissions
//
// The embedded server does not listen. Only this process connects to it, so no other can
// read the queue or change the streams. An external server must see to that itself.
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

// DefaultSync is how often files are synced to the disk.
const DefaultSync = 10 * time.Second

// MaxPayload is the largest message in bytes, headers and subject included. JetStream's
// files hold no larger ones.
const MaxPayload = 32 << 20

// BrokerOptions configures a Broker.
type BrokerOptions struct {
	// Dir is the directory of the embedded server's streams.
	Dir string
	// URL is that of an external NATS server with JetStream, or several separated by
	// commas. With it, no server is embedded, and Dir has no effect.
	URL string
	// Login is how the broker logs in at URL. Replicas is the number of servers of its cluster
	// that keep each stream, 1 to 5; 0 leaves that to the server, or as it is.
	Login    Login
	Replicas int
	// Sync is the time between syncs of the files, DefaultSync if 0. SyncAlways syncs
	// each message. Both hold for the embedded server only.
	Sync       time.Duration
	SyncAlways bool
	// MaxQueued and MaxDead are the most bytes on the disk for queued requests and for
	// dead letters, DefaultMaxQueued and DefaultMaxDead if 0.
	MaxQueued, MaxDead int64
	// MaxResults is the most bytes of kept results, 0 for none, MaxResultCount their number.
	MaxResults, MaxResultCount int64
	Logger                     zerolog.Logger
}

// Broker is a connection to the streams. It is safe for concurrent use.
type Broker struct {
	options  BrokerOptions
	embedded *embedded
	log      zerolog.Logger

	// publishing refuses at once while there is no connection: a message that was
	// refused must not be sent later. settling buffers acknowledgements meanwhile, so
	// none is lost.
	publishing, settling *nats.Conn
	js                   jetstream.JetStream

	// ids is the key of the IDs, nil if there are none. settled says that there is a key, or will not be soon.
	ids     atomic.Pointer[[]byte]
	settled atomic.Bool
	// lacking is why the last try to have the streams of states and results failed, nil if it did not. The next
	// try is not before followAt. Only OpenBroker and then maintain use them.
	lacking  error
	followAt time.Time
	// followedSince is the time of the first try.
	followedSince time.Time
	// trouble is the reason why messages are refused now, nil if they are accepted.
	trouble atomic.Pointer[error]
	check   chan struct{}
	// lost says that a subject may have no stream.
	lost    atomic.Bool
	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// OpenBroker starts the embedded server or connects to the external one. It fails if a
// directory cannot be written or read, or a URL is invalid. An external server never makes it fail:
// without an answer, with refused credentials, or without streams, OpenBroker returns after
// a few seconds, [Broker.Usable] has the reason, and the Broker keeps trying.
func OpenBroker(ctx context.Context, o BrokerOptions) (_ *Broker, err error) {
	b := &Broker{options: o, log: o.Logger, check: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	switch {
	case o.URL == "" && (o.Login != Login{} || o.Replicas != 0):
		return nil, errors.New("--nats-credentials, --nats-tls and --nats-replicas are for an external server: give its --nats, or leave them out")
	case o.Replicas < 0 || o.Replicas > 5:
		return nil, fmt.Errorf("--nats-replicas is %d: it must be from 1 to 5, or 0 for the server's own number", o.Replicas)
	case o.URL == "":
		if b.embedded, err = startEmbedded(ctx, o, b.Check); err != nil {
			return nil, err
		}
	}
	b.setTrouble(errStarting)
	if err := b.connect(); err != nil {
		return nil, err
	}
	if b.js, err = jetstream.New(b.publishing, jetstream.WithPublishAsyncTimeout(publishTimeout), jetstream.WithPublishAsyncMaxPending(maxPublishing)); err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	if err := b.firstStreams(ctx); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.stopped.Go(func() { b.maintain(run) })
	return b, nil
}

// publishTimeout is how long the server may take to write a message. maxPublishing is the
// number of messages that may be on their way.
const (
	publishTimeout = 5 * time.Second
	maxPublishing  = 8192
)

var errStarting = errors.New("the queue is starting")

// JetStream returns the API for publishing messages and managing the streams.
func (b *Broker) JetStream() jetstream.JetStream { return b.js }

// Publishing returns the connection that refuses messages while the server is away.
func (b *Broker) Publishing() *nats.Conn { return b.publishing }

// Settling returns the connection for taking and acknowledging messages. While the server
// is away, it buffers what is sent.
func (b *Broker) Settling() *nats.Conn { return b.settling }

// MaxPayload returns the largest message in bytes that this server takes.
func (b *Broker) MaxPayload() int64 {
	if n := b.publishing.MaxPayload(); n > 0 {
		return min(n, MaxPayload)
	}
	return MaxPayload
}

// Address returns the external server's "host:port", that of the first of several
// servers. It is "" for an embedded one.
func (b *Broker) Address() string { return hostPort(b.options.URL) }

// URL returns the external server's URL without its password.
func (b *Broker) URL() string { return redact(b.options.URL) }

// Embedded reports whether the server runs in this process.
func (b *Broker) Embedded() bool { return b.embedded != nil }

// Trouble returns the reason why the server stores nothing, nil if it does. Messages that
// are on their way get no answer then.
func (b *Broker) Trouble() error {
	if p := b.trouble.Load(); p != nil {
		return *p
	}
	return nil
}

// Usable returns nil if messages can be stored now, otherwise the reason.
func (b *Broker) Usable() error {
	if err := b.Trouble(); err != nil {
		return err
	}
	if b.embedded != nil {
		return b.embedded.room()
	}
	return nil
}

// Check makes the broker check the server now. Call it when a message could not be
// published.
func (b *Broker) Check() {
	select {
	case b.check <- struct{}{}:
	default:
	}
}

// Remake makes the broker check the server now, and its streams' subjects. Call it when no stream has taken a
// message: a replica of an older version sets the subjects that it knows.
func (b *Broker) Remake() {
	b.lost.Store(true)
	b.Check()
}

func (b *Broker) setTrouble(err error) { b.trouble.Store(&err) }

// Close ends the connections and the embedded server. Messages stay in the streams.
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

// Stored returns the content of a queued message by its number.
func (b *Broker) Stored(ctx context.Context, sequence uint64) ([]byte, error) {
	s, err := b.JetStream().Stream(ctx, WorkStream)
	if err != nil {
		return nil, err
	}
	m, err := s.GetMsg(ctx, sequence)
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}
