package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The bytes that a worker asks for in one pull.
const (
	leastGrant = 256 << 10
	maxGrant   = 32 << 20
)

// overhead is what a message is counted beside its data, in bytes.
const overhead = 1 << 10

// gather is how long a worker lets places come free before it pulls a few
// messages; with an eighth of the places free it pulls at once.
const gather = 2 * time.Millisecond

// firstPause is how soon a worker that was told of a message looks again where
// there seems to be none; then four times as late each time. The server tells its
// consumers of a message after it has told the sender that it is stored.
const firstPause = time.Millisecond

// pullPatience is how long an answer to a pull may take.
const pullPatience = 5 * time.Second

// maxPutOff is how many messages of one function may be in hand or put off to
// a later try. Those behind them wait.
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
	// wake tells of a message that was stored, freed of a place that has come
	// free.
	wake, freed chan struct{}
	inbox       chan *nats.Msg
	reply       string

	mu      sync.Mutex
	inUse   PoolStats
	bytes   int64
	working map[*Message]struct{}
	// back are the times when messages that were put off come back.
	back times

	// The rest is the loop's own.
	subscription *nats.Subscription
	pull         pull
	// at is when to pull next, quiet since when there has been nothing to do,
	// few since when there have been few places.
	at, quiet, few time.Time
	// pause is for how long there was nothing to pull for last time.
	pause time.Duration
	// woken: a message was stored since the last pull was sent, so its answer
	// "no messages" may be out of date.
	woken bool
	// average is the size of messages, need what the next one is known to
	// take, in bytes.
	average, need int64
}

// pull is a request to the server that has not been answered to the end.
type pull struct {
	open bool
	// left messages and grant bytes are still to come at most; any tells
	// whether one came.
	left  int
	grant int64
	any   bool
	until time.Time
}

func newWorker(p *Pool, key string) *worker {
	return &worker{
		pool: p, key: key, name: consumerName(key), wake: make(chan struct{}, 1), freed: make(chan struct{}, 1),
		inbox:   make(chan *nats.Msg, 4*p.options.Concurrency+64),
		working: map[*Message]struct{}{}, average: 4 << 10, need: leastGrant,
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (w *worker) poke() { poke(w.wake) }

// loop runs until the pool is closed or there has been nothing to do for long.
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
		select {
		case <-time.After(min(250*time.Millisecond<<min(failures, 5), 5*time.Second)):
		case <-w.pool.run.Done():
			return
		}
	}
}

// open makes the consumer, or finds it.
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

// leave gives back what has come and was not begun.
func (w *worker) leave() {
	if w.subscription != nil {
		// It fails if the connection is closed.
		_ = w.subscription.Unsubscribe()
	}
	w.endPull()
	for {
		select {
		case m := <-w.inbox:
			if status(m) == "" {
				w.settle(m.Reply, ackLater(0))
			}
		default:
			return
		}
	}
}

// serve pulls and hands out messages until something fails; nil means that the
// worker is done.
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

// step pulls if it is time to, and says when to look again at the latest.
func (w *worker) step(now time.Time) (time.Duration, error) {
	if w.pull.open {
		if now.After(w.pull.until) {
			return 0, errNoAnswer
		}
		return w.pull.until.Sub(now), nil
	}
	w.mu.Lock()
	places := min(w.pool.options.Concurrency-w.inUse.Running, heldFactor*w.pool.options.Concurrency-w.inUse.Held)
	share, nothing := w.pool.options.share()-w.bytes, w.inUse.Held == 0
	at := w.back.until(now, w.at)
	w.mu.Unlock()
	if !now.Before(at) {
		w.at = time.Time{} // As soon as there is a place.
	}
	switch {
	case now.Before(at):
		return at.Sub(now), nil
	case places <= 0, share < w.need && !nothing:
		return w.pool.options.Poll, nil // Until a place comes free.
	case places < w.pool.options.Concurrency/8:
		if w.few.IsZero() {
			w.few = now
		}
		if d := w.few.Add(gather).Sub(now); d > 0 {
			return d, nil
		}
	}
	w.few = time.Time{}
	return pullPatience, w.ask(places, min(max(2*w.average*int64(places), w.need), max(share, w.need), max(maxGrant, w.need)))
}

// idle reports whether there has been nothing to do for long.
func (w *worker) idle(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inUse.Held == 0 && !w.pull.open && now.Sub(w.quiet) > w.pool.options.Idle
}

// retire removes the consumer if no message is left for it. A message that is
// stored in the same moment stays in the stream, and wakes a worker.
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
