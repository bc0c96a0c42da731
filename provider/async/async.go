// Package async is everything about asynchronous invocations: a request is
// accepted at once, waits in a queue on the disk, is executed when its turn
// comes, many of a function at a time so that they batch, and its result is
// posted to the caller's callback URL.
//
// # The way of a request
//
// It comes from the stock gateway, which publishes it over NATS Streaming
// (package queue), or over HTTP ([Queue.Accept]). It is stored in a JetStream
// stream (package queue says what survives what), and only then acknowledged:
// what was accepted is executed at least once, whatever is killed in between. It
// is taken out again by its function's own worker (package queue) and handed to
// the Invoker ([Executor]). It leaves the stream when its result has been delivered; what
// fails is tried again as package retry decides, and what is given up lies among
// the dead letters (package dead), where a person can look at it and send it off
// again.
//
// "At least once" is what is promised: a provider that is killed between the end
// of an execution and its acknowledgement executes it again. A callback tells
// them apart by X-Call-Id.
//
// # Functions that go away
//
// Queued requests of a function that is deleted are given up when their turn
// comes, with the reason no_function; their callbacks are told 404. After it was
// deployed again they can be replayed. A request for a function that is not
// deployed is not accepted.
package async

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/async/retry"
)

// Defaults of Options.
const (
	DefaultMaxBody          = 32 << 20
	DefaultBodyTimeout      = 30 * time.Second
	DefaultCallbackAttempts = 6
)

// longestPostWait is the longest wait between two tries of a callback.
const longestPostWait = 30 * time.Second

// Options are what a Queue works with.
type Options struct {
	// Dir, Listen, URL, Sync, SyncAlways, MaxQueued and MaxDead are
	// broker.Options's.
	Dir, Listen, URL   string
	Sync               time.Duration
	SyncAlways         bool
	MaxQueued, MaxDead int64
	// Several: other providers work on the same external NATS, and the same
	// functions. What one leaves the others go on with, and a function that one does
	// not know may have been deployed at another a moment ago.
	Several bool
	// Cluster and Channel are the gateway's, stan's defaults if empty.
	Cluster, Channel string
	// Invoker and Functions are required.
	Invoker   Invoker
	Functions Functions
	// Callback says where callbacks may go; CallbackAttempts is how often one
	// is tried, DefaultCallbackAttempts if 0.
	Callback         CallbackOptions
	CallbackAttempts int
	// MaxBody is the largest body that Accept takes, in bytes; DefaultMaxBody
	// if 0. JetStream keeps bodies of at most about 23.9 MiB. BodyTimeout is
	// how long a client may take to send one.
	MaxBody     int64
	BodyTimeout time.Duration
	// Concurrency, MaxHeld, AckWait and Idle are consume.Options's.
	Concurrency   int
	MaxHeld       int64
	AckWait, Idle time.Duration
	// Registerer is where the metrics are shown; nil for nowhere.
	Registerer prometheus.Registerer
	Logger     zerolog.Logger
}

// flushTimeout is how long the NATS server may take to know of subscriptions.
const flushTimeout = 5 * time.Second

// Queue is the queue of asynchronous invocations. It is safe for concurrent use.
type Queue struct {
	options  Options
	broker   *queue.Broker
	admin    *Admin
	executor *Executor
	metrics  *Metrics
	log      zerolog.Logger
	accepted chan publication
	held     bytesHeld

	mu      sync.Mutex
	pool    *queue.Pool
	gateway *queue.StanService
	acks    sync.WaitGroup
	// draining is closed when Close begins, closed when it is over.
	draining, closed chan struct{}
	begin, end       sync.Once
}

// Open opens the queue's streams. Nothing is executed, and no gateway is
// answered, before Start. Its errors are sentences for the user; see broker.Open.
func Open(ctx context.Context, o Options) (*Queue, error) {
	if o.MaxBody <= 0 {
		o.MaxBody = DefaultMaxBody
	}
	if o.BodyTimeout <= 0 {
		o.BodyTimeout = DefaultBodyTimeout
	}
	b, err := queue.OpenBroker(ctx, queue.BrokerOptions{
		Dir: o.Dir, Listen: o.Listen, URL: o.URL, Sync: o.Sync, SyncAlways: o.SyncAlways,
		MaxQueued: o.MaxQueued, MaxDead: o.MaxDead, Logger: o.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("asynchronous requests: %w", err)
	}
	q := &Queue{
		options: o, broker: b, log: o.Logger,
		accepted: make(chan publication, maxAccepting), draining: make(chan struct{}), closed: make(chan struct{}),
	}
	q.metrics = NewMetrics((&gauge{broker: b}).depth, q.inHand)
	if err := q.metrics.Register(o.Registerer); err != nil {
		b.Close()
		return nil, fmt.Errorf("asynchronous requests: metrics: %w", err)
	}
	letters := NewDeadLetters(b.JetStream(), queue.DeadStream, queue.DeadSubjects)
	q.admin = &Admin{Broker: b, Dead: letters, InHand: q.stats, Send: q.sendAgain, Logger: o.Logger}
	posting := retry.Default()
	posting.Attempts, posting.MaxWait = cmp.Or(o.CallbackAttempts, DefaultCallbackAttempts), longestPostWait
	q.executor = &Executor{
		Invoker: o.Invoker, Functions: o.Functions, Poster: NewPoster(o.Callback), Posting: posting, Dead: letters,
		Metrics: q.metrics, Draining: q.draining, Patience: q.patience(),
		// Events that every request can cause make a few lines a second.
		Logger: o.Logger.Sample(&zerolog.BurstSampler{Burst: 5, Period: time.Second}),
	}
	q.acks.Go(q.acknowledge)
	return q, nil
}

// Start begins to execute what is queued and to answer the gateway. Call it once
// the functions are known: requests of functions that are not are given up. The
// error says why the gateway cannot be answered; Close is needed all the same.
func (q *Queue) Start() (err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pool = queue.StartPool(queue.PoolOptions{
		Connection: q.broker.Settling(), JetStream: q.broker.JetStream(), Stream: queue.WorkStream, Subject: queue.WorkSubjects,
		Handle: q.executor.Handle, Concurrency: q.options.Concurrency, AckWait: q.options.AckWait, Idle: q.options.Idle,
		MaxHeld: q.options.MaxHeld, MaxMessage: queue.MaxPayload, Logger: q.log,
	})
	q.gateway, err = queue.ServeStan(q.broker.Publishing(), queue.StanOptions{
		Cluster: q.options.Cluster, Channel: q.options.Channel, Take: q.take, Logger: q.log,
	})
	if err == nil {
		// The server must know its subscriptions first.
		err = q.broker.Publishing().FlushTimeout(flushTimeout)
	}
	if err != nil && !q.broker.Embedded() && !q.broker.Publishing().IsConnected() {
		err = nil // Subscriptions are made when the connection is.
	}
	if err == nil {
		err = q.broker.Listen()
	}
	if err != nil {
		return fmt.Errorf("asynchronous requests: %w", err)
	}
	return nil
}

// Close accepts nothing more, stops taking requests out of the queue, waits until
// ctx ends for those that are being executed, gives the others back to the queue,
// and ends the embedded server. Call it while the Invoker still works.
func (q *Queue) Close(ctx context.Context) {
	q.mu.Lock()
	pool, gateway := q.pool, q.gateway
	q.mu.Unlock()
	if q.options.Several && gateway != nil {
		// The gateway's next requests go to the others, not to one that refuses.
		gateway.Leave(ctx)
	}
	q.begin.Do(func() { close(q.draining) })
	if pool != nil {
		pool.Close(ctx)
	}
	q.end.Do(func() {
		if gateway != nil {
			gateway.Close()
		}
		close(q.closed)
		q.acks.Wait()
		q.executor.Poster.Close()
		q.metrics.Unregister(q.options.Registerer)
		q.broker.Close()
	})
}

// knownWithin is how long a provider may take to hear of a function that was deployed
// at another.
const knownWithin = 10 * time.Second

// patience is how long a request is kept whose function is not known.
func (q *Queue) patience() time.Duration {
	if q.options.Several {
		return knownWithin
	}
	return 0
}

// Address is the NATS server's "host:port", for the gateway; "" if the embedded
// server listens nowhere. It is settled after Start.
func (q *Queue) Address() string { return q.broker.Address() }

// System serves everything at and below Prefix; see admin.Admin.Serve. It asks for
// no credentials: that is the caller's part. An error has not been answered.
func (q *Queue) System(w http.ResponseWriter, r *http.Request) error { return q.admin.Serve(w, r) }

// Status is how much lies in the queue.
func (q *Queue) Status(ctx context.Context) (Status, error) { return q.admin.Status(ctx) }

// wake tells the pool of a stored message.
func (q *Queue) wake(name string) {
	if pool := q.running(); pool != nil {
		pool.Wake(queue.SubjectKey(name))
	}
}

// running is the pool, nil before Start.
func (q *Queue) running() *queue.Pool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pool
}

// stats is what is in hand by key.
func (q *Queue) stats() map[string]queue.PoolStats {
	if pool := q.running(); pool != nil {
		return pool.Stats()
	}
	return nil
}

// inHand sums stats up.
func (q *Queue) inHand() (executing, posting int) {
	for _, s := range q.stats() {
		executing, posting = executing+s.Running, posting+s.Held-s.Running
	}
	return executing, posting
}
