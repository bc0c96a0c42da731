package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/faas-infer/faas-infer/backoff"
)

// The smallest and the largest number of bytes that a worker asks for in one pull.
const (
	minGrant = 256 << 10
	maxGrant = 32 << 20
)

// overhead is the number of bytes that a message counts in addition to its data.
const overhead = 1 << 10

// gather is how long a worker waits for more free places if fewer than an eighth are
// free. Otherwise it pulls at once.
const gather = 2 * time.Millisecond

// firstPause is how long a worker waits after a pull that found no message, and each
// further wait is four times as long, up to Poll. A woken worker may find none because the
// server tells the publisher that a message is stored before it tells the consumers.
const firstPause = time.Millisecond

// pullPatience is how long the server may take to answer a pull.
const pullPatience = 5 * time.Second

// maxPutOff is the number of messages of one function that may be in hand or wait for
// their next try. Messages behind them wait.
const maxPutOff = 1 << 16

var (
	errNoAnswer = errors.New("the server does not answer")
	errReopen   = errors.New("the consumer is gone")
)

// worker takes the messages of one key.
type worker struct {
	pool *Pool
	key  string
	name string
	// wake signals a stored message, freed a place that has come free.
	wake, freed chan struct{}
	inbox       chan *nats.Msg
	// reply is the subject of inbox.
	reply string

	// mu guards the fields up to back.
	mu      sync.Mutex
	inUse   PoolStats
	bytes   int64
	working map[*Message]struct{}
	// back are the times when kept messages come back.
	back times

	// Only loop uses the rest.
	subscription *nats.Subscription
	pull         pull
	// at is the time of the next pull. quiet is the time since which there has been
	// nothing to do, few the time since which few places have been free.
	at, quiet, few time.Time
	// pause is the wait after the last pull that found no message.
	pause time.Duration
	// woken says that a message was stored after the last pull was sent. Its answer
	// "no messages" may then be out of date.
	woken bool
	// average is the average size of messages in bytes. need is the size that the next
	// pull must allow for.
	average, need int64
}

// pull is a request to the server that is not completely answered.
type pull struct {
	open bool
	// left is the number of messages, grant the number of bytes that may still come.
	// any says that a message has come.
	left  int
	grant int64
	any   bool
	// until is when the worker stops waiting for the answer.
	until time.Time
}

func newWorker(p *Pool, key string) *worker {
	return &worker{
		pool: p, key: key, name: p.options.Durable + consumerName(key), wake: make(chan struct{}, 1), freed: make(chan struct{}, 1),
		inbox:   make(chan *nats.Msg, 4*p.options.Concurrency+64),
		working: map[*Message]struct{}{}, average: 4 << 10, need: minGrant,
	}
}

// wakeUp sends a signal, unless one is pending already.
func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (w *worker) wakeUp() { wakeUp(w.wake) }

// loop runs until the pool closes or the worker retires.
func (w *worker) loop() {
	defer w.leave()
	for failures := 0; ; failures++ {
		err := w.open()
		if err == nil {
			failures = 0
			err = w.serve()
		}
		if err == nil || w.pool.run.Err() != nil {
			return
		}
		w.pool.log.Debug().Err(err).Str("function", w.key).Msg("taking messages")
		if errors.Is(err, errReopen) && failures == 0 {
			continue
		}
		if !backoff.Wait(w.pool.run, backoff.Pause(failures+1, 250*time.Millisecond, 5*time.Second)) {
			return
		}
	}
}

// open creates the consumer, or updates it if it exists.
func (w *worker) open() error {
	w.endPull()
	ctx, cancel := context.WithTimeout(w.pool.run, pullPatience)
	defer cancel()
	_, err := w.pool.options.JetStream.CreateOrUpdateConsumer(ctx, w.pool.options.Stream, jetstream.ConsumerConfig{
		Durable: w.name, FilterSubject: w.pool.options.Subject + w.key, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: w.pool.options.AckWait, MaxDeliver: -1, MaxAckPending: maxPutOff, MaxWaiting: 16,
	})
	if err != nil {
		return err
	}
	w.at, w.quiet, w.few = time.Time{}, time.Now(), time.Time{}
	if w.subscription != nil {
		return nil
	}
	w.reply = w.pool.options.Connection.NewInbox()
	w.subscription, err = w.pool.options.Connection.ChanSubscribe(w.reply, w.inbox)
	return err
}

// leavePatience is how long a worker that leaves waits for the answer to its last pull.
const leavePatience = time.Second

// leave gives messages that have come and were not begun back to the server.
func (w *worker) leave() {
	// The server answers a pull at once. It would deliver messages that come after the end
	// of the subscription again only after AckWait.
	for patience := time.After(leavePatience); w.pull.open; {
		select {
		case m := <-w.inbox:
			w.giveBack(m)
		case <-patience:
			w.endPull()
		}
	}
	if w.subscription != nil {
		// It fails if the connection is closed.
		_ = w.subscription.Unsubscribe()
	}
	w.endPull()
	for {
		select {
		case m := <-w.inbox:
			w.giveBack(m)
		default:
			return
		}
	}
}

// giveBack gives a message back to the server, or handles the end of a pull.
func (w *worker) giveBack(m *nats.Msg) {
	if status(m) != "" {
		// The error is a reason to open the consumer again.
		_ = w.receive(m)
		return
	}
	w.settle(m.Reply, ackLater(0))
	if !w.pull.open {
		return
	}
	w.pull.any = true
	if w.pull.left--; w.pull.left == 0 {
		w.endPull()
	}
}

// serve pulls messages and hands them to the handler until a step fails. nil means that
// the worker has retired or the pool closes.
func (w *worker) serve() error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		if w.idle(now) {
			if done, err := w.retire(); done || err != nil {
				return err
			}
			w.quiet = now
		}
		wait, err := w.step(now)
		if err != nil {
			return err
		}
		timer.Reset(wait)
		select {
		case <-w.pool.run.Done():
			return nil
		case m := <-w.inbox:
			if err := w.receive(m); err != nil {
				return err
			}
		case <-w.wake:
			w.at, w.quiet, w.woken, w.pause = time.Time{}, time.Now(), true, 0
		case <-w.freed:
		case <-timer.C:
		}
	}
}

// step pulls if it is time, and returns how long to wait until the next step at most.
func (w *worker) step(now time.Time) (time.Duration, error) {
	if w.pull.open {
		if now.After(w.pull.until) {
			return 0, errNoAnswer
		}
		return w.pull.until.Sub(now), nil
	}
	if owns := w.pool.options.Owns; owns != nil && !owns(w.key) {
		return w.pool.options.Poll, nil
	}
	w.mu.Lock()
	places := min(w.pool.options.Concurrency-w.inUse.Running, heldFactor*w.pool.options.Concurrency-w.inUse.Held)
	held := w.bytes
	at := w.back.until(now, w.at)
	w.mu.Unlock()
	if !now.Before(at) {
		w.at = time.Time{} // As soon as there is a place.
	}
	switch {
	case now.Before(at):
		return at.Sub(now), nil
	case places <= 0:
		return w.pool.options.Poll, nil // Until a place comes free.
	case places < w.pool.options.Concurrency/8:
		if w.few.IsZero() {
			w.few = now
		}
		if d := w.few.Add(gather).Sub(now); d > 0 {
			return d, nil
		}
	}
	grant, err := w.pool.budget.take(w.pool.run, held, w.need, max(w.need, min(2*w.average*int64(places), maxGrant)))
	if err != nil {
		return 0, err
	}
	if grant == 0 {
		return w.pool.options.Poll, nil // Until a message gives its bytes back.
	}
	w.few = time.Time{}
	return pullPatience, w.ask(places, grant)
}

// idle reports whether there has been nothing to do for longer than PoolOptions.Idle.
func (w *worker) idle(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inUse.Held == 0 && !w.pull.open && now.Sub(w.quiet) > w.pool.options.Idle
}

// retire deletes the consumer if it has no messages left. A message that is stored at the
// same moment stays in the stream and wakes a worker.
func (w *worker) retire() (done bool, err error) {
	ctx, cancel := context.WithTimeout(w.pool.run, pullPatience)
	defer cancel()
	js, stream := w.pool.options.JetStream, w.pool.options.Stream
	c, err := js.Consumer(ctx, stream, w.name)
	if err != nil {
		return false, err
	}
	if info := c.CachedInfo(); info.NumPending > 0 || info.NumAckPending > 0 {
		return false, nil
	}
	if err := js.DeleteConsumer(ctx, stream, w.name); err != nil {
		return false, err
	}
	w.pool.mu.Lock()
	defer w.pool.mu.Unlock()
	if len(w.wake) > 0 {
		return false, errReopen
	}
	delete(w.pool.workers, w.key)
	return true, nil
}
