package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

// Defaults of PoolOptions.
const (
	DefaultConcurrency = 256
	DefaultAckWait     = 10 * time.Second
	DefaultMaxHeld     = 256 << 20
	DefaultIdle        = time.Minute
	DefaultPoll        = 2 * time.Second
	DefaultScan        = 10 * time.Second
)

// heldFactor bounds the messages of one function in hand, as a multiple of Concurrency.
// Those that are not being executed wait for their callbacks.
const heldFactor = 4

// Handler executes one message and says what becomes of it. ctx ends when the pool gives
// up the messages in hand.
type Handler func(ctx context.Context, m *Message) Verdict

// PoolOptions configures a Pool.
type PoolOptions struct {
	// Connection must buffer what is sent while the server is away.
	Connection *nats.Conn
	JetStream  jetstream.JetStream
	// Stream is the stream's name. Subject is the beginning of its subjects; the rest
	// of a message's subject is its Key.
	Stream, Subject string
	// Durable begins the names of the pool's consumers. Pools of one stream must differ in it.
	Durable string
	Handle  Handler
	// Owns, if not nil, reports whether this process takes the messages of a key. Those of
	// another key stay in the stream.
	Owns func(key string) bool
	// Concurrency is the maximum number of messages of one function that are executed
	// at a time.
	Concurrency int
	// AckWait is how long the server waits for a sign of life before it delivers a
	// message again, for example after this process was killed.
	AckWait time.Duration
	// MaxHeld is the most bytes that all messages in hand may take together, at least
	// twice MaxMessage. The functions share them as budget says.
	MaxHeld int64
	// MaxMessage is the size of the largest message in bytes.
	MaxMessage int64
	// Idle is how long a function must be without messages before its consumer is
	// deleted. Poll is how often a worker looks for messages without having been
	// woken. Scan is how often the stream is searched for subjects without a worker.
	Idle, Poll, Scan time.Duration
	Logger           zerolog.Logger
}

// complete sets defaults and raises limits that are too small.
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
	// 4 KiB for the subject and headers that the server counts with a message.
	o.MaxMessage = max(o.MaxMessage, 1<<20) + 4<<10
	// A function that holds nothing may take half of what is free.
	o.MaxHeld = max(o.MaxHeld, 2*o.MaxMessage)
}

// Pool holds the workers of all functions, one each.
type Pool struct {
	options PoolOptions
	budget  budget
	log     zerolog.Logger

	// run ends when the pool stops pulling, work when it gives up the messages in hand.
	run, work   context.Context
	stop, abort context.CancelFunc
	busy, loops sync.WaitGroup

	mu      sync.Mutex
	workers map[string]*worker
	closed  bool
	// stored has the number of stored messages by key, as of the time counted.
	stored  map[string]uint64
	counted time.Time
}

// StartPool starts a pool, which hands messages to o.Handle until Close.
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

// Wake tells the pool that a message with this key has been stored.
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
	w.wakeUp()
}

// Stop stops pulling and returns at once. Close must follow soon: until then the server
// gets no signs of life for the messages in hand.
func (p *Pool) Stop() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
}

// Close stops pulling and waits for the messages in hand until ctx ends. It gives the
// rest back to the queue.
func (p *Pool) Close(ctx context.Context) {
	p.Stop()
	p.loops.Wait()
	done := make(chan struct{})
	go func() {
		p.busy.Wait()
		close(done)
	}()
	beats := time.Tick(p.options.AckWait / 3)
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
		case <-beats:
			p.progress()
		}
	}
}

// flush sends the last acknowledgements.
func (p *Pool) flush() {
	if p.options.Connection.IsConnected() {
		// Without them, the server delivers the messages again after AckWait.
		_ = p.options.Connection.FlushTimeout(2 * time.Second)
	}
}

// PoolStats counts the messages of one key in hand.
type PoolStats struct {
	// Running counts the messages that are being executed, Held all those in hand.
	Running, Held int
}

// Plus returns the sum of two counts.
func (s PoolStats) Plus(o PoolStats) PoolStats {
	return PoolStats{Running: s.Running + o.Running, Held: s.Held + o.Held}
}

// Stats returns the counts by key, without keys that have no message in hand.
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
	return slices.Collect(maps.Values(p.workers))
}

// beat sends signs of life for the messages in hand, three times in AckWait.
func (p *Pool) beat() {
	ticks := time.Tick(p.options.AckWait / 3)
	for {
		select {
		case <-p.run.Done():
			return
		case <-ticks:
			p.progress()
		}
	}
}

func (p *Pool) progress() {
	for _, w := range p.all() {
		w.progress()
	}
}

// scan finds messages for which Wake was not called: those of an earlier run of the
// provider, and those that another replica has stored.
func (p *Pool) scan() {
	p.scanConsumers()
	ticks := time.Tick(p.options.Scan)
	for {
		if err := p.scanSubjects(); err != nil && p.run.Err() == nil {
			p.log.Debug().Err(err).Msg("searching the queue")
		}
		select {
		case <-p.run.Done():
			return
		case <-ticks:
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
	stored := make(map[string]uint64, len(info.State.Subjects))
	for subject, n := range info.State.Subjects {
		key := strings.TrimPrefix(subject, p.options.Subject)
		stored[key] = n
		if !p.has(key) {
			p.Wake(key)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stored, p.counted = stored, time.Now()
	return nil
}

// Depth returns how many messages of a key there were when the stream was last searched, and when
// that was. Those that this process has put off do not count.
func (p *Pool) Depth(key string) (n int, at time.Time) {
	p.mu.Lock()
	n, at = int(p.stored[key]), p.counted
	w := p.workers[key]
	p.mu.Unlock()
	if w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		n -= min(n, len(w.back))
	}
	return n, at
}

func (p *Pool) has(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.workers[key] != nil
}

// scanConsumers starts a worker for each consumer of an earlier run of the provider. A
// worker without messages deletes its consumer after Idle.
func (p *Pool) scanConsumers() {
	ctx, cancel := context.WithTimeout(p.run, 5*time.Second)
	defer cancel()
	s, err := p.options.JetStream.Stream(ctx, p.options.Stream)
	if err != nil {
		return // scanSubjects finds those with messages.
	}
	for info := range s.ListConsumers(ctx).Info() {
		if key, ok := strings.CutPrefix(info.Config.FilterSubject, p.options.Subject); ok {
			p.Wake(key)
		}
	}
}

// consumerName returns the name of a key's consumer, which must not contain dots. A key
// that is not a function's gets a name with a checksum.
func consumerName(key string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.'
	}
	if strings.ContainsFunc(key, func(r rune) bool { return !plain(r) }) || len(key) > 150 {
		return fmt.Sprintf("other_%x", checksum(key))
	}
	return strings.ReplaceAll(key, ".", "_")
}
