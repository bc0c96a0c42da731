package queue

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

// Defaults of Options.
const (
	DefaultConcurrency = 256
	DefaultAckWait     = 10 * time.Second
	DefaultMaxHeld     = 256 << 20
	DefaultIdle        = time.Minute
	DefaultPoll        = 2 * time.Second
	DefaultScan        = 10 * time.Second
)

// heldFactor is how many messages of one function may be in hand altogether, as
// a multiple of those that are executed: the others wait for their callbacks.
const heldFactor = 4

// Handler deals with one message and says what becomes of it. ctx ends when
// there is no time left.
type Handler func(ctx context.Context, m *Message) Verdict

// PoolOptions are what a Pool works with.
type PoolOptions struct {
	// Connection must keep what is sent while the server is away.
	Connection *nats.Conn
	JetStream  jetstream.JetStream
	// Stream and Subject, the beginning of the subjects: what follows it is a
	// Message's Key.
	Stream, Subject string
	Handle          Handler
	// Concurrency is how many messages of one function are executed at a
	// time.
	Concurrency int
	// AckWait is how soon the message of a consumer that died comes back.
	AckWait time.Duration
	// MaxHeld is how many bytes all messages in hand may take together, and
	// one function a quarter of them but at least MaxMessage.
	MaxHeld int64
	// MaxMessage is the size of the largest message, in bytes.
	MaxMessage int64
	// Idle is after how long without anything to do a consumer goes; Poll how
	// often a worker looks for messages that nobody told it of; Scan how often
	// the stream is searched for subjects without a worker.
	Idle, Poll, Scan time.Duration
	Logger           zerolog.Logger
}

func (o *PoolOptions) complete() {
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	set(&o.AckWait, DefaultAckWait)
	set(&o.Idle, DefaultIdle)
	set(&o.Poll, DefaultPoll)
	set(&o.Scan, DefaultScan)
	if o.Concurrency <= 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.MaxHeld <= 0 {
		o.MaxHeld = DefaultMaxHeld
	}
	// A message, what the server counts to it, and room for the next one.
	o.MaxMessage = max(o.MaxMessage, 1<<20) + 4<<10
	o.MaxHeld = max(o.MaxHeld, o.MaxMessage)
}

// share is how many bytes one function may hold.
func (o *PoolOptions) share() int64 { return max(o.MaxHeld/4, o.MaxMessage) }

// Pool is the workers of all functions.
type Pool struct {
	options PoolOptions
	budget  budget
	log     zerolog.Logger

	// run ends when nothing more is pulled, work when those in hand are given
	// up.
	run, work   context.Context
	stop, abort context.CancelFunc
	busy, loops sync.WaitGroup

	mu      sync.Mutex
	workers map[string]*worker
	closed  bool
}

// StartPool begins to consume.
func StartPool(o PoolOptions) *Pool {
	o.complete()
	p := &Pool{options: o, log: o.Logger, workers: map[string]*worker{}}
	p.budget.free = o.MaxHeld
	p.run, p.stop = context.WithCancel(context.Background())
	p.work, p.abort = context.WithCancel(context.Background())
	p.loops.Go(p.beat)
	p.loops.Go(p.scan)
	return p
}

// Wake tells that a message of a key has been stored.
func (p *Pool) Wake(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	w := p.workers[key]
	if w == nil {
		w = newWorker(p, key)
		p.workers[key] = w
		p.loops.Go(w.loop)
	}
	w.poke()
}

// Close stops pulling, waits for what is in hand until ctx ends, and then gives
// it back to the queue.
func (p *Pool) Close(ctx context.Context) {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	p.loops.Wait()
	done := make(chan struct{})
	go func() {
		p.busy.Wait()
		close(done)
	}()
	beats := time.NewTicker(p.options.AckWait / 3)
	defer beats.Stop()
	for {
		select {
		case <-done:
			p.abort()
			p.flush()
			return
		case <-ctx.Done():
			p.abort()
			<-done
			p.flush()
			return
		case <-beats.C:
			p.progress()
		}
	}
}

// flush sends the last acknowledgements.
func (p *Pool) flush() {
	if p.options.Connection.IsConnected() {
		// They are sent again after AckWait otherwise.
		_ = p.options.Connection.FlushTimeout(2 * time.Second)
	}
}

// PoolStats is what is in hand of one key.
type PoolStats struct {
	// Running messages are executed; Held is all that are in hand.
	Running, Held int
}

// PoolStats returns what is in hand by key.
func (p *Pool) Stats() map[string]PoolStats {
	out := map[string]PoolStats{}
	for _, w := range p.all() {
		if s := w.stats(); s != (PoolStats{}) {
			out[w.key] = s
		}
	}
	return out
}

func (p *Pool) all() []*worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*worker, 0, len(p.workers))
	for _, w := range p.workers {
		out = append(out, w)
	}
	return out
}

// beat tells the server of what is being worked on.
func (p *Pool) beat() {
	ticks := time.NewTicker(p.options.AckWait / 3)
	defer ticks.Stop()
	for {
		select {
		case <-p.run.Done():
			return
		case <-ticks.C:
			p.progress()
		}
	}
}

func (p *Pool) progress() {
	for _, w := range p.all() {
		w.progress()
	}
}

// scan finds messages of which nobody told: those of an earlier provider, and
// those of another one beside this.
func (p *Pool) scan() {
	p.scanConsumers()
	ticks := time.NewTicker(p.options.Scan)
	defer ticks.Stop()
	for {
		if err := p.scanSubjects(); err != nil && p.run.Err() == nil {
			p.log.Debug().Err(err).Msg("searching the queue")
		}
		select {
		case <-p.run.Done():
			return
		case <-ticks.C:
		}
	}
}

func (p *Pool) scanSubjects() error {
	ctx, cancel := context.WithTimeout(p.run, 5*time.Second)
	defer cancel()
	s, err := p.options.JetStream.Stream(ctx, p.options.Stream)
	if err != nil {
		return err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(p.options.Subject+">"))
	if err != nil {
		return err
	}
	for subject := range info.State.Subjects {
		key := strings.TrimPrefix(subject, p.options.Subject)
		if !p.has(key) {
			p.Wake(key)
		}
	}
	return nil
}

func (p *Pool) has(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.workers[key] != nil
}

// scanConsumers starts a worker for each consumer of an earlier provider; one
// without messages removes it.
func (p *Pool) scanConsumers() {
	ctx, cancel := context.WithTimeout(p.run, 5*time.Second)
	defer cancel()
	s, err := p.options.JetStream.Stream(ctx, p.options.Stream)
	if err != nil {
		return // They are found by their subjects.
	}
	for info := range s.ListConsumers(ctx).Info() {
		if key, ok := strings.CutPrefix(info.Config.FilterSubject, p.options.Subject); ok {
			p.Wake(key)
		}
	}
}

// consumerName is a key as the name of a consumer, which may hold no dots. Keys
// that are no function's are told apart by a checksum.
func consumerName(key string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.'
	}
	if strings.ContainsFunc(key, func(r rune) bool { return !plain(r) }) || len(key) > 150 {
		return fmt.Sprintf("other_%x", checksum(key))
	}
	return strings.ReplaceAll(key, ".", "_")
}
