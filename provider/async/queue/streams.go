package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The streams and the beginnings of their subjects. A subject ends in the function's
// NAMESPACE.NAME. WorkStream has the subjects of best-effort requests, too.
const (
	WorkStream         = "FAAS_INFER_ASYNC"
	WorkSubjects       = "faas-infer.async.run."
	BestEffortSubjects = "faas-infer.async.best-effort."
	DeadStream         = "FAAS_INFER_ASYNC_DEAD"
	DeadSubjects       = "faas-infer.async.dead."
)

// The default sizes of the streams in bytes: 8 GiB and 1 GiB.
const (
	DefaultMaxQueued = 8 << 30
	DefaultMaxDead   = 1 << 30
)

// duplicates is how long a stream remembers the id of a message. Within that time it does
// not store a replayed or buried message twice.
const duplicates = 10 * time.Minute

// lookInterval is the time between two checks while messages are refused, calmInterval
// while they are accepted.
const (
	lookInterval = time.Second
	calmInterval = 10 * time.Second
)

func (b *Broker) streams() []jetstream.StreamConfig {
	work := jetstream.StreamConfig{
		Name: WorkStream, Description: "faas-infer: asynchronous invocations that wait", Subjects: []string{WorkSubjects + ">", BestEffortSubjects + ">"},
		// A message stays in the stream until it is acknowledged.
		Retention: jetstream.WorkQueuePolicy,
		// A full stream refuses new messages and keeps the old ones.
		Discard: jetstream.DiscardNew, MaxBytes: b.options.MaxQueued,
		Storage: jetstream.FileStorage, Duplicates: duplicates,
	}
	if work.MaxBytes <= 0 {
		work.MaxBytes = DefaultMaxQueued
	}
	dead := work
	dead.Name, dead.Description, dead.Subjects = DeadStream, "faas-infer: asynchronous invocations that were given up", []string{DeadSubjects + ">"}
	dead.Retention, dead.AllowDirect, dead.MaxBytes = jetstream.LimitsPolicy, true, b.options.MaxDead
	if dead.MaxBytes <= 0 {
		dead.MaxBytes = DefaultMaxDead
	}
	return []jetstream.StreamConfig{work, dead}
}

// makeStreams creates the streams, or updates their configuration.
func (b *Broker) makeStreams(ctx context.Context) error {
	for _, s := range b.streams() {
		_, err := b.js.CreateOrUpdateStream(ctx, s)
		switch {
		case err == nil:
		case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
			return fmt.Errorf("the NATS server at %s keeps no streams: start it with JetStream (nats-server -js): %w", b.URL(), err)
		case errors.Is(err, nats.ErrNoResponders):
			return fmt.Errorf("the NATS server does not answer for JetStream; is it on (nats-server -js)? %w", err)
		default:
			return fmt.Errorf("stream %s: %w", s.Name, err)
		}
	}
	return nil
}

// firstStreams makes the streams when the broker opens. If an external server is away, it
// leaves that to maintain.
func (b *Broker) firstStreams(ctx context.Context) error {
	if b.embedded == nil && !b.publishing.IsConnected() {
		b.setTrouble(errAway)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := b.makeStreams(ctx); err != nil {
		if b.embedded == nil && !b.publishing.IsConnected() {
			b.setTrouble(errAway)
			return nil
		}
		return err
	}
	b.setTrouble(nil)
	return nil
}

var errAway = errors.New("NATS cannot be reached; the provider keeps trying")

// maintain keeps the queue usable. It makes the streams when the server is back. After a
// write error, it restarts the embedded server once there is room.
func (b *Broker) maintain(ctx context.Context) {
	timer := time.NewTimer(lookInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-b.check:
		}
		b.look(ctx)
		if *b.trouble.Load() == nil {
			timer.Reset(calmInterval)
		} else {
			timer.Reset(lookInterval)
		}
	}
}

// look checks the server, sets or clears b.trouble, and logs a change of it.
func (b *Broker) look(ctx context.Context) {
	before := *b.trouble.Load()
	now := b.condition(ctx, before)
	if ctx.Err() != nil {
		return
	}
	b.setTrouble(now)
	switch {
	case now != nil && (before == nil || before.Error() != now.Error()):
		b.log.Error().Err(now).Msg("asynchronous requests are refused")
	case now == nil && before != nil:
		b.log.Info().Msg("asynchronous requests are accepted again")
	}
}

// condition returns the reason why messages cannot be stored now, nil if they can. It
// repairs what it can. before is its previous result.
func (b *Broker) condition(ctx context.Context, before error) error {
	if b.embedded != nil {
		if err := b.embedded.sound(); err != nil {
			if err := b.mend(ctx, err); err != nil {
				return err
			}
			before = errStarting
		}
	} else if !b.publishing.IsConnected() {
		return errAway
	}
	if before == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := b.publishing.FlushWithContext(ctx); err != nil {
		return errAway
	}
	return b.makeStreams(ctx)
}

// mend restarts the embedded server, unless the disk is still full.
func (b *Broker) mend(ctx context.Context, wrong error) error {
	if err := roomIn(b.options.Dir); err != nil {
		return err
	}
	b.log.Warn().Err(wrong).Msg("opening the queue again")
	if err := b.embedded.restart(ctx); err != nil {
		return fmt.Errorf("the queue cannot be opened again: %w", err)
	}
	return b.embedded.sound()
}
