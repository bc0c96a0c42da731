// Package async executes asynchronous invocations. It accepts a request at once, keeps it
// in a queue on the disk, executes many requests of a function at a time (so they batch),
// and posts each result to the caller's callback URL. It does not store messages, which
// package queue does, nor decide about retries, which package retry does. Begin reading
// at [Open], then [Executor.Handle].
//
// # A request's way
//
// A request comes from the stock gateway over NATS Streaming (package stan), or over
// HTTP ([Queue.Accept]). It is stored in a JetStream stream and only then acknowledged;
// package queue says what its disk and its server survive. The function's own worker
// (package queue) takes it out and hands it to the Invoker ([Executor]). It leaves the
// stream when its result has been delivered. A request that fails is tried again as
// package retry decides. A request that is given up goes to the dead letters
// ([DeadLetters]), where a user can look at it and replay it.
//
// An accepted request is executed at least once, whichever process is killed. It is
// executed again if the provider is killed between the end of the execution and its
// acknowledgement. The receiver of callbacks recognizes repetitions by X-Call-Id.
//
// # Functions that go away
//
// A request for a function that is not deployed is refused. Queued requests of a function
// that is deleted are given up when their turn comes, with the reason no_function and the
// status 404 for their callbacks. They can be replayed after the function has been
// deployed again.
//
// # Best effort
//
// A request with the header X-Infer-Class: best-effort is stored under a subject of its own. It
// runs on what the ordinary requests of its function and its nodes leave, as package spare
// decides, and never starts an instance. It expires after spare.Age.
package async

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/async/retry"
	"github.com/faas-infer/faas-infer/provider/async/spare"
	"github.com/faas-infer/faas-infer/provider/async/stan"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Defaults of Options.
const (
	DefaultMaxBody          = 32 << 20
	DefaultBodyTimeout      = 30 * time.Second
	DefaultCallbackAttempts = 6
)

// maxPostWait is the longest wait between two tries of a callback.
const maxPostWait = 30 * time.Second

// Options configures a Queue.
type Options struct {
	// Dir, URL, Login, Replicas, Sync, SyncAlways, MaxQueued and MaxDead are those of
	// queue.BrokerOptions.
	Dir, URL           string
	Login              queue.Login
	Replicas           int
	Sync               time.Duration
	SyncAlways         bool
	MaxQueued, MaxDead int64
	// MaxResults and MaxResultCount are those of queue.BrokerOptions.
	MaxResults, MaxResultCount int64
	// Listen is the "HOST:PORT" at which gateways publish, "" or stan.Off for none. With
	// URL it has no effect: gateways then publish to the external server.
	Listen string
	// Several says that other replicas of the provider share the external NATS and the
	// functions. When one shuts down, the others execute its requests. A function that
	// one does not know may have just been deployed at another.
	Several bool
	// Cluster and Channel are those of stan.Options.
	Cluster, Channel string
	// Invoker and Functions are required.
	Invoker   Invoker
	Functions Functions
	// Admit, if not nil, refuses a message of a gateway whose sender may not call the function. It
	// removes from the header what the function must not see. Those who use Accept do the same.
	Admit func(ctx context.Context, name string, header http.Header) error
	// Spare executes best-effort requests; with nil they are refused. SpareAge is how long one
	// may wait, spare.Age if 0.
	Spare    Spare
	SpareAge time.Duration
	// Callback says where callbacks may go. CallbackAttempts is the number of tries
	// for one, DefaultCallbackAttempts if 0.
	Callback         CallbackOptions
	CallbackAttempts int
	// MaxBody is the most bytes of a body that Accept takes, DefaultMaxBody if 0.
	// JetStream keeps bodies of at most about 23.9 MiB. BodyTimeout is how long a
	// client may take to send a body, DefaultBodyTimeout if 0.
	MaxBody     int64
	BodyTimeout time.Duration
	// Bodies counts the bodies that Accept holds together with others; nil for a bound of
	// their own.
	Bodies *web.BodyReader
	// Concurrency, MaxHeld, AckWait and Idle are those of queue.PoolOptions. SpareHeld is
	// MaxHeld for best-effort requests and for urgent ones, a quarter of the default if 0. Ordinary requests have
	// a budget of their own, so these never wait for them.
	Concurrency        int
	MaxHeld, SpareHeld int64
	AckWait, Idle      time.Duration
	// Tracer traces requests and callbacks, nil for none.
	Tracer Tracer
	// Registerer is where the metrics are registered, nil for nowhere.
	Registerer prometheus.Registerer
	Logger     zerolog.Logger
}

// flushTimeout is how long the NATS server may take to confirm subscriptions.
const flushTimeout = 5 * time.Second

// Queue is the queue of asynchronous invocations. It is safe for concurrent use.
type Queue struct {
	options  Options
	broker   *queue.Broker
	admin    *Admin
	executor *Executor
	follower *follower
	metrics  *Metrics
	log      zerolog.Logger
	accepted chan publication
	bodies   *web.BodyReader
	// spare executes best-effort requests, nil if they are refused.
	spare *bestEffort

	mu sync.Mutex
	// pool executes ordinary requests, urgentPool urgent ones and sparePool best-effort ones. All are nil
	// before Start, and sparePool is if there is no spare.
	pool, urgentPool, sparePool *queue.Pool
	// door answers gateways if the server is embedded, bus if it is external.
	door *stan.Door
	bus  *stan.Bus
	// acks is the goroutine that acknowledges gateways' messages, storing are the messages
	// that it has not acknowledged yet. storing grows only under intake and before refusing
	// is closed.
	acks, storing sync.WaitGroup
	intake        sync.RWMutex
	// draining is closed when nothing more is taken out of the queue, refusing when
	// gateways are refused, drained when no request is in hand any more, and closed when
	// no more acknowledgements go out.
	draining, refusing, drained, closed chan struct{}
	begin, end                          sync.Once
}

// Open opens the queue's streams. The Queue executes nothing and answers no gateway
// before Start. Errors are sentences for the user; see queue.OpenBroker.
func Open(ctx context.Context, o Options) (*Queue, error) {
	o.complete()
	if o.URL != "" || o.Listen == stan.Off {
		o.Listen = ""
	}
	if o.Listen != "" {
		if err := stan.CheckAddress(o.Listen); err != nil {
			return nil, fmt.Errorf("asynchronous requests: %w", err)
		}
	}
	b, err := queue.OpenBroker(ctx, queue.BrokerOptions{
		Dir: o.Dir, URL: o.URL, Login: o.Login, Replicas: o.Replicas, Sync: o.Sync, SyncAlways: o.SyncAlways,
		MaxQueued: o.MaxQueued, MaxDead: o.MaxDead, MaxResults: o.MaxResults, MaxResultCount: o.MaxResultCount, Logger: o.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("asynchronous requests: %w", err)
	}
	// Only the provider that has the broker's directory may write there.
	running, err := openExecuting(o.Dir, time.Now())
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("asynchronous requests: %w", err)
	}
	q := &Queue{
		options: o, broker: b, log: o.Logger,
		bodies:   o.Bodies.WithMax(min(o.MaxBody, maxBody(queue.MaxPayload))),
		accepted: make(chan publication, maxAccepting), draining: make(chan struct{}), refusing: make(chan struct{}), drained: make(chan struct{}), closed: make(chan struct{}),
	}
	if o.Spare != nil {
		q.spare = &bestEffort{Spare: o.Spare, age: cmp.Or(o.SpareAge, spare.Age), running: map[string]int{}}
	}
	q.metrics = NewMetrics((&gauge{broker: b, begun: q.spareInHand}).depth, q.inHand)
	if err := q.metrics.Register(o.Registerer); err != nil {
		b.Close()
		return nil, fmt.Errorf("asynchronous requests: metrics: %w", errors.Join(err, running.Close()))
	}
	letters := NewDeadLetters(b.JetStream(), queue.DeadStream, queue.DeadSubjects)
	q.admin = &Admin{Broker: b, Dead: letters, InHand: q.stats, Address: q.Address, Send: q.sendAgain, Logger: o.Logger}
	q.follower = &follower{broker: b, states: newStates(b), hand: newInHand(), several: o.Several, cancelled: q.metrics.Cancelled}
	posting := retry.Default()
	posting.Attempts, posting.MaxWait = cmp.Or(o.CallbackAttempts, DefaultCallbackAttempts), maxPostWait
	q.executor = &Executor{
		Invoker: o.Invoker, Functions: o.Functions, Poster: NewPoster(o.Callback), Posting: posting, Dead: letters, Stored: b.Stored,
		Metrics: q.metrics, Draining: q.draining, Patience: q.patience(), Tracer: o.Tracer,
		executing: running, spool: newSpool(o.Dir), states: q.follower.states, hand: q.follower.hand, turns: newTurns(o.Concurrency),
		// Any request can cause these lines, so at most 5 a second are written.
		Logger: o.Logger.Sample(&zerolog.BurstSampler{Burst: 5, Period: time.Second}),
	}
	q.acks.Go(q.acknowledge)
	return q, nil
}

// complete sets defaults.
func (o *Options) complete() {
	if o.MaxBody <= 0 {
		o.MaxBody = DefaultMaxBody
	}
	if o.BodyTimeout <= 0 {
		o.BodyTimeout = DefaultBodyTimeout
	}
	if o.Concurrency <= 0 {
		o.Concurrency = queue.DefaultConcurrency
	}
	if o.Bodies == nil {
		o.Bodies = web.NewBodyReader(o.MaxBody, o.BodyTimeout, maxReading)
	}
}

// Start begins to execute queued requests and to answer the gateway. Call it after the
// functions are known: a request of an unknown function is given up. The error says why
// the gateway cannot be answered. Call Close even after an error.
func (q *Queue) Start() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := queue.PoolOptions{
		Connection: q.broker.Settling(), JetStream: q.broker.JetStream(), Stream: queue.WorkStream, Subject: queue.WorkSubjects,
		Handle: q.executor.Handle, Concurrency: q.options.Concurrency + window(q.options.Concurrency), AckWait: q.options.AckWait, Idle: q.options.Idle,
		MaxHeld: q.options.MaxHeld, MaxMessage: queue.MaxPayload, Logger: q.log,
	}
	q.pool = queue.StartPool(o)
	// They overtake the others that wait in the stream. Among those in hand, the deadline decides.
	o.Subject, o.Durable, o.Concurrency = queue.UrgentSubjects, "urgent_", window(q.options.Concurrency)
	o.MaxHeld = cmp.Or(q.options.SpareHeld, queue.DefaultMaxHeld/4)
	q.urgentPool = queue.StartPool(o)
	if q.spare != nil {
		executor := *q.executor
		executor.BestEffort = q.spare
		o.Subject, o.Durable, o.Handle, o.Concurrency = queue.BestEffortSubjects, "best-effort_", executor.Handle, 1
		o.Owns = func(key string) bool { return q.spare.Owns(queue.FromSubjectKey(key)) }
		q.sparePool = queue.StartPool(o)
	}
	if err := errors.Join(q.answerGateways(), q.follower.listen()); err != nil {
		return fmt.Errorf("asynchronous requests: %w", err)
	}
	return nil
}

// answerGateways begins to answer gateways. The caller holds q.mu.
func (q *Queue) answerGateways() (err error) {
	o := stan.Options{Cluster: q.options.Cluster, Channel: q.options.Channel, Take: q.take, Logger: q.log}
	if q.broker.Embedded() {
		if q.options.Listen != "" {
			q.door, err = stan.Listen(q.options.Listen, o)
		}
		return err
	}
	if q.bus, err = stan.Serve(q.broker.Publishing(), o); err != nil {
		return err
	}
	// A server that cannot be reached, or is slow, gets the subscriptions later.
	if err := q.broker.Publishing().FlushTimeout(flushTimeout); err != nil && q.broker.Publishing().IsConnected() {
		q.log.Warn().Err(err).Msg("NATS has not confirmed the subscriptions to gateways' requests yet; it has them when it does")
	}
	return nil
}

// Drain takes nothing more out of the queue, and no more requests of gateways. It returns a
// channel that is closed when the requests that are being executed have ended. When ctx
// ends, it gives those back to the queue. [Queue.Accept] goes on: who calls it lets no more
// requests in, and those that are in can be stored. The Invoker may refuse requests with
// 503 from now on; they stay in the queue.
func (q *Queue) Drain(ctx context.Context) <-chan struct{} {
	q.begin.Do(func() {
		pools := q.pools()
		q.mu.Lock()
		bus := q.bus
		q.mu.Unlock()
		close(q.draining)
		for _, pool := range pools {
			pool.Stop()
		}
		var ending sync.WaitGroup
		if q.options.Several && bus != nil {
			// The gateways' next requests go to other replicas; this one would refuse them.
			ending.Go(func() {
				bus.Leave(ctx)
				q.refuse()
				q.awaitStored(ctx)
			})
		} else {
			q.refuse()
			ending.Go(func() { q.awaitStored(ctx) })
		}
		for _, pool := range pools {
			ending.Go(func() { pool.Close(ctx) })
		}
		go func() {
			ending.Wait()
			close(q.drained)
		}()
	})
	return q.drained
}

// refuse refuses gateways' messages from now on.
func (q *Queue) refuse() {
	q.intake.Lock()
	defer q.intake.Unlock()
	close(q.refusing)
}

// awaitStored waits until all gateways' messages are acknowledged, or until ctx ends. Call
// it after refuse. A message that is stored and not acknowledged would be sent again.
func (q *Queue) awaitStored(ctx context.Context) {
	all := make(chan struct{})
	go func() {
		q.storing.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-ctx.Done():
	}
}

// Close drains the queue until ctx ends, unless Drain was called before. Then it ends the
// embedded server. Call it while the Invoker still works.
func (q *Queue) Close(ctx context.Context) {
	<-q.Drain(ctx)
	q.end.Do(func() {
		q.mu.Lock()
		door, bus := q.door, q.bus
		q.mu.Unlock()
		if bus != nil {
			bus.Close()
		}
		close(q.closed)
		q.acks.Wait()
		if door != nil {
			door.Close()
		}
		q.executor.Poster.Close()
		q.metrics.Unregister(q.options.Registerer)
		q.broker.Close()
		if err := q.executor.executing.Close(); err != nil {
			q.log.Warn().Err(err).Msg("cannot close the file of requests in execution")
		}
	})
}

// knownWithin is how long a replica may take to hear of a function that another has
// deployed.
const knownWithin = 10 * time.Second

// patience returns how long a request of an unknown function is kept.
func (q *Queue) patience() time.Duration {
	if q.options.Several {
		return knownWithin
	}
	return 0
}

// Address returns the "host:port" to which a gateway publishes, "" if there is none. It
// does not change after Start.
func (q *Queue) Address() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.door != nil {
		return q.door.Address()
	}
	return q.broker.Address()
}

// System serves everything at and below Prefix; see Admin.Serve.
func (q *Queue) System(w http.ResponseWriter, r *http.Request) error { return q.admin.Serve(w, r) }

// Status returns the state of the queue.
func (q *Queue) Status(ctx context.Context) (Status, error) { return q.admin.Status(ctx) }

// Backlog returns how many requests of a function, by its full name, were stored and not answered
// at a time of late, without best-effort ones; the zero time before Start.
func (q *Queue) Backlog(function string) (n int, at time.Time) {
	q.mu.Lock()
	pool, urgent := q.pool, q.urgentPool
	q.mu.Unlock()
	if pool == nil {
		return 0, time.Time{}
	}
	n, at = pool.Depth(queue.SubjectKey(function))
	soon, _ := urgent.Depth(queue.SubjectKey(function))
	return n + soon, at
}

// wake tells the pool that a message has been stored.
func (q *Queue) wake(to destination) {
	q.mu.Lock()
	pool := q.pool
	switch {
	case to.bestEffort:
		pool = q.sparePool
	case to.urgent:
		pool = q.urgentPool
	}
	q.mu.Unlock()
	if pool != nil {
		pool.Wake(queue.SubjectKey(to.name))
	}
}

// pools returns the pools that run, none before Start.
func (q *Queue) pools() (all []*queue.Pool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, pool := range []*queue.Pool{q.pool, q.urgentPool, q.sparePool} {
		if pool != nil {
			all = append(all, pool)
		}
	}
	return all
}

// stats returns the messages in hand, counted by key. A best-effort request that waits for
// room is not in hand.
func (q *Queue) stats() map[string]queue.PoolStats {
	sum, own := q.spareStats(), map[string]queue.PoolStats{}
	q.mu.Lock()
	pools := []*queue.Pool{q.pool, q.urgentPool}
	q.mu.Unlock()
	if pools[0] == nil {
		return sum
	}
	for _, pool := range pools {
		for key, s := range pool.Stats() {
			own[key] = own[key].Plus(s)
		}
	}
	for key, s := range own {
		sum[key] = sum[key].Plus(q.executor.turns.begun(key, s))
	}
	return sum
}

// inHand returns the sums of stats.
func (q *Queue) inHand() (executing, posting int) {
	for _, s := range q.stats() {
		executing, posting = executing+s.Running, posting+s.Held-s.Running
	}
	return executing, posting
}
