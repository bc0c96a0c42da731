package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The streams and the beginnings of their subjects. A subject ends in the function's
// NAMESPACE.NAME. WorkStream has the subjects of urgent and best-effort requests, too.
const (
	WorkStream         = "FAAS_INFER_ASYNC"
	WorkSubjects       = "faas-infer.async.run."
	UrgentSubjects     = "faas-infer.async.urgent."
	BestEffortSubjects = "faas-infer.async.best-effort."
	DeadStream         = "FAAS_INFER_ASYNC_DEAD"
	DeadSubjects       = "faas-infer.async.dead."
)

// The default sizes of the streams in bytes: 8 GiB, 1 GiB and, for results, 256 MiB and 10,000 of
// them. maxStates is that of the states in bytes.
const (
	DefaultMaxQueued  = 8 << 30
	DefaultMaxDead    = 1 << 30
	DefaultMaxResults = 256 << 20
	DefaultMaxCount   = 10_000
	maxStates         = 32 << 20
)

// StateAge is how long the server knows what became of a request, MaxKeep how long it may
// keep a result.
const (
	StateAge = 24 * time.Hour
	MaxKeep  = 24 * time.Hour
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

// externalPatience is how long a server may take for the streams in one try, embeddedPatience
// how long the embedded one may take when the broker opens.
const (
	externalPatience = 10 * time.Second
	embeddedPatience = 30 * time.Second
)

// streams returns the configurations of the streams of requests and dead letters.
func streams(o BrokerOptions) []jetstream.StreamConfig {
	work := jetstream.StreamConfig{
		Name: WorkStream, Description: "faas-infer: asynchronous invocations that wait",
		Subjects: []string{WorkSubjects + ">", UrgentSubjects + ">", BestEffortSubjects + ">"},
		// A message stays in the stream until it is acknowledged.
		Retention: jetstream.WorkQueuePolicy,
		// A full stream refuses new messages and keeps the old ones.
		Discard: jetstream.DiscardNew, MaxBytes: o.MaxQueued,
		Storage: jetstream.FileStorage, Duplicates: duplicates, Replicas: o.Replicas,
	}
	if work.MaxBytes <= 0 {
		work.MaxBytes = DefaultMaxQueued
	}
	dead := work
	dead.Name, dead.Description, dead.Subjects = DeadStream, "faas-infer: asynchronous invocations that were given up", []string{DeadSubjects + ">"}
	dead.Retention, dead.AllowDirect, dead.MaxBytes = jetstream.LimitsPolicy, true, o.MaxDead
	if dead.MaxBytes <= 0 {
		dead.MaxBytes = DefaultMaxDead
	}
	return []jetstream.StreamConfig{work, dead}
}

// smallest is how often the streams' sizes are halved at most: to 32 MiB of requests.
const smallest = 8

// makeStreams creates the streams, or updates their configuration. If the server has no
// room for them, they take half, a quarter, and so on: a server on a volume of 10 GiB keeps
// at most 7.5 GiB. A stream that exists does not become smaller, and keeps what else an
// administrator has set, such as its replicas.
func (b *Broker) makeStreams(ctx context.Context) error {
	existing, err := b.existing(ctx)
	for halved := 0; err == nil || tooLarge(err) && halved <= smallest; halved++ {
		var most int64
		if most, err = b.tryStreams(ctx, existing, halved); err == nil {
			if halved > 0 {
				b.log.Warn().Int64("bytes", most).Msg("the NATS server has no room for more: the queue of asynchronous requests is smaller than usual")
			}
			follow(ctx, b)
			return nil
		}
	}
	return err
}

// existing returns the configurations of the streams that exist, by name.
func (b *Broker) existing(ctx context.Context) (map[string]jetstream.StreamConfig, error) {
	all := map[string]jetstream.StreamConfig{}
	for _, s := range streams(b.options) {
		found, err := b.js.Stream(ctx, s.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return nil, explain(b.options, s.Name, err)
		}
		all[s.Name] = found.CachedInfo().Config
	}
	return all, nil
}

// tryStreams is makeStreams with sizes that are halved so many times. It returns the most
// bytes of queued requests.
func (b *Broker) tryStreams(ctx context.Context, existing map[string]jetstream.StreamConfig, halved int) (most int64, err error) {
	for _, s := range streams(b.options) {
		s.MaxBytes >>= halved
		was, exists := existing[s.Name]
		if exists {
			s = updated(was, s)
		}
		_, err := b.js.CreateOrUpdateStream(ctx, s)
		if tooLarge(err) && exists && s.MaxBytes == was.MaxBytes {
			err = nil // The server has less room than before. The stream stays as it is.
		}
		if err != nil {
			return 0, explain(b.options, s.Name, err)
		}
		if s.Name == WorkStream {
			most = s.MaxBytes
		}
	}
	return most, nil
}

// updated returns the configuration of a stream that exists, changed as far as want needs. An
// unlimited stream, of MaxBytes -1, stays unlimited. Replicas change only to a number that is given.
func updated(is, want jetstream.StreamConfig) jetstream.StreamConfig {
	is.Retention, is.Discard = want.Retention, want.Discard
	// Another version, whose replicas run beside this one, may need further subjects.
	is.Subjects = slices.Concat(want.Subjects, slices.DeleteFunc(slices.Clone(is.Subjects), func(s string) bool {
		return slices.Contains(want.Subjects, s)
	}))
	is.AllowDirect = is.AllowDirect || want.AllowDirect
	is.Duplicates = max(is.Duplicates, want.Duplicates)
	if want.Replicas > 0 {
		is.Replicas = want.Replicas
	}
	if is.MaxBytes > 0 {
		is.MaxBytes = max(is.MaxBytes, want.MaxBytes)
	}
	return is
}

// explain returns a sentence that says why a stream cannot be had.
func explain(o BrokerOptions, stream string, err error) error {
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("the NATS server at %s keeps no streams: start it with JetStream (nats-server -js): %w", redact(o.URL), err)
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("the NATS server does not answer for JetStream; is it on (nats-server -js)? %w", err)
	case tooLarge(err):
		return fmt.Errorf("stream %s: the NATS server has too little storage; give it a larger volume or raise max_file_store: %w", stream, err)
	case tooFew(err):
		return fmt.Errorf("stream %s: --nats-replicas is %d, and the NATS server has no cluster of so many servers with JetStream: %w", stream, o.Replicas, err)
	}
	return fmt.Errorf("stream %s: %w", stream, err)
}

// JetStream's codes for a stream that is larger than an account, a server, or each server of
// a cluster allows, and for replicas without a cluster. They are part of its protocol; the client does not export them.
const (
	codeAccountResources = 10002
	codeNoPeers          = 10005
	codeStorage          = 10047
	codeStreamBytes      = 10122
	codeNoCluster        = 10074
)

// tooLarge reports whether the server refuses a stream for its size.
func tooLarge(err error) bool {
	var refused *jetstream.APIError
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.ErrorCode {
	case codeAccountResources, codeStorage, codeStreamBytes:
		return true
	case codeNoPeers:
		return strings.Contains(refused.Description, "storage")
	}
	return false
}

// tooFew reports whether the server cannot keep so many replicas of a stream.
func tooFew(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && (refused.ErrorCode == codeNoCluster || refused.ErrorCode == codeNoPeers)
}

// firstStreams makes the streams when the broker opens. If an external server cannot keep
// them yet, it leaves that to maintain.
func (b *Broker) firstStreams(ctx context.Context) error {
	if b.embedded == nil && !b.publishing.IsConnected() && !errors.Is(b.Trouble(), errStarting) {
		return nil // connect has said why.
	}
	patience := externalPatience
	if b.embedded != nil {
		patience = embeddedPatience
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := b.condition(ctx, errStarting)
	if err != nil && b.embedded != nil {
		return err
	}
	if err != nil {
		b.log.Error().Err(err).Msg("asynchronous requests are refused")
	}
	b.setTrouble(err)
	return nil
}

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
	trying, cancel := context.WithTimeout(ctx, externalPatience)
	defer cancel()
	now := b.condition(trying, before)
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
			if err := b.reopen(ctx, err); err != nil {
				return err
			}
			before = errStarting
		}
	} else if !b.publishing.IsConnected() {
		return b.away(b.publishing.LastError())
	}
	if before == nil && !b.lost.Swap(false) {
		if b.lacking != nil && time.Now().After(b.followAt) {
			follow(ctx, b)
		}
		return nil
	}
	if err := b.publishing.FlushWithContext(ctx); err != nil {
		return b.away(err)
	}
	return b.makeStreams(ctx)
}

// reopen restarts the embedded server, unless the disk is still full.
func (b *Broker) reopen(ctx context.Context, wrong error) error {
	if err := roomIn(b.options.Dir); err != nil {
		return err
	}
	b.log.Warn().Err(wrong).Msg("opening the queue again")
	if err := b.embedded.restart(ctx); err != nil {
		return fmt.Errorf("the queue cannot be opened again: %w", err)
	}
	return b.embedded.sound()
}
