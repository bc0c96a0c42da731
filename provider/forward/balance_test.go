package forward

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

// The instance with the fewest requests in flight gets the next one.
func TestLeastInFlight(t *testing.T) {
	r := newRig(t, Options{})
	gate := make(chan struct{})
	slow := start(t, "slow", func(http.ResponseWriter, *http.Request) { <-gate })
	fast := start(t, "fast", echo)
	r.up(slow)
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() { r.post("x") })
	}
	waitFor(t, func() bool { return slow.seen.Load() == 3 })
	r.up(fast)
	for range 10 {
		r.answers(200, "x")
	}
	if n := slow.seen.Load(); n != 3 {
		t.Errorf("the busy instance got %d more requests", n-3)
	}
	close(gate)
	wait.Wait()
	// Idle ones take turns.
	slow.seen.Store(0)
	fast.seen.Store(0)
	for range 10 {
		r.answers(200, "")
	}
	if a, b := slow.seen.Load(), fast.seen.Load(); a != 5 || b != 5 {
		t.Errorf("of 10 requests one after another, idle instances got %d and %d", a, b)
	}
	r.settled()
}

func TestColdRequestsAreHeldAndBounded(t *testing.T) {
	r := newRig(t, Options{QueueLimit: 20})
	var wait sync.WaitGroup
	var full, served atomic.Int64
	for range 30 {
		wait.Go(func() {
			switch code, text, header := r.post("x"); {
			case code == 429 && header.Get("Retry-After") == "1":
				full.Add(1)
			case code == 200 && text == "x":
				served.Add(1)
			default:
				t.Errorf("%d %s", code, text)
			}
		})
	}
	waitFor(t, func() bool { return full.Load() == 10 && r.Stats().Waiting == 20 })
	r.up(start(t, "a", echo))
	wait.Wait()
	if served.Load() != 20 || r.woken.Load() != 20 || r.Stats().Cold != 20 {
		t.Errorf("%d served, woken %d times, %d cold", served.Load(), r.woken.Load(), r.Stats().Cold)
	}
	r.settled()
}

func TestColdWithoutAnInstanceEnds(t *testing.T) {
	r := newRig(t, Options{ColdWait: 20 * time.Millisecond})
	r.answers(503, "no instance of the function became ready in time")
	r.SetProblem("it exited with code 3", false)
	code, text, header := r.post("x")
	if code != 503 || text != "no instance of the function became ready in time: it exited with code 3\n" || header.Get("Retry-After") != "1" {
		t.Errorf("%d %q", code, text)
	}
	if header.Get("X-Openfaas-Internal") != "provider" {
		t.Error("the error does not say that it is the provider's")
	}
}

func TestProblemThatIsOfNoUseToWaitFor(t *testing.T) {
	r := newRig(t, Options{ColdWait: time.Hour})
	answered := make(chan error, 1)
	go func() {
		_, err := r.invoke(context.Background(), "x")
		answered <- err
	}()
	waitFor(t, func() bool { return r.Stats().Waiting == 1 })
	r.SetProblem("it cannot start", true)
	var known *web.Error
	if err := <-answered; !errors.As(err, &known) || known.HTTPStatus() != 503 {
		t.Errorf("what waited got %v", err)
	}
	r.answers(503, "the function cannot be served: it cannot start")
	r.up(start(t, "a", echo))
	r.answers(200, "x")
	if r.record.drops[metrics.NoInstance] != 2 {
		t.Errorf("drops: %v", r.record.drops)
	}
}

func TestPatience(t *testing.T) {
	r := newRig(t, Options{ColdWait: 10 * time.Millisecond})
	in := start(t, "a", echo)
	time.AfterFunc(100*time.Millisecond, func() { r.up(in) })
	q, err := r.InvokePatiently(t.Context(), post("x"), time.Minute)
	if err != nil || string(q.Body) != "x" {
		t.Errorf("a patient request got %v, %v", q, err)
	}
}

func TestDrainWaitsForWhatIsInFlight(t *testing.T) {
	r := newRig(t, Options{})
	gate := make(chan struct{})
	old := start(t, "old", func(w http.ResponseWriter, q *http.Request) { <-gate; echo(w, q) })
	r.up(old)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		r.answers(200, "x")
	}()
	waitFor(t, func() bool { return old.seen.Load() == 1 })
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := r.Drain(short, old.id); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("drained while a request ran: %v", err)
	}
	r.up(start(t, "new", answering("new")))
	r.answers(200, "new")
	r.up(old) // It does not come back.
	r.answers(200, "new")
	close(gate)
	if err := r.Drain(t.Context(), old.id); err != nil {
		t.Error(err)
	}
	<-answered
	if !r.Forget(old.id) {
		t.Error("the instance that answered is said never to have")
	}
	if r.Forget(old.id) || r.Drain(t.Context(), old.id) != nil {
		t.Error("an instance that is gone is known")
	}
}

func TestForgetEndsADrain(t *testing.T) {
	r := newRig(t, Options{})
	in := start(t, "a", func(w http.ResponseWriter, q *http.Request) { echo(w, q); <-q.Context().Done() })
	r.up(in)
	go r.invoke(t.Context(), "x")
	waitFor(t, func() bool { return in.seen.Load() == 1 })
	drained := make(chan error)
	go func() { drained <- r.Drain(t.Context(), in.id) }()
	in.kill()
	r.Forget(in.id)
	if err := <-drained; err != nil {
		t.Error(err)
	}
	r.settled()
}

func TestCloseAnswersWhatWaits(t *testing.T) {
	r := newRig(t, Options{ColdWait: time.Hour})
	answered := make(chan error, 1)
	go func() {
		_, err := r.invoke(context.Background(), "x")
		answered <- err
	}()
	waitFor(t, func() bool { return r.Stats().Waiting == 1 })
	r.Close()
	if err := <-answered; !errors.Is(err, ErrClosed) {
		t.Errorf("error %v", err)
	}
	r.up(start(t, "a", echo))
	r.answers(503, "the function is being removed")
}

// A client that leaves while it waits is taken out of the queue.
func TestAClientThatLeaves(t *testing.T) {
	r := newRig(t, Options{ColdWait: time.Hour})
	ctx, leave := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		_, err := r.invoke(ctx, "x")
		answered <- err
	}()
	waitFor(t, func() bool { return r.Stats().Waiting == 1 })
	leave()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	r.settled()
	in := start(t, "a", echo)
	r.up(in)
	if in.seen.Load() != 0 {
		t.Error("the request is executed for nobody")
	}
}

// An instance that accepts no connection is given up. The request goes to another one,
// or waits for it.
func TestInstanceThatTakesNoConnection(t *testing.T) {
	r := newRig(t, Options{})
	dead := start(t, "dead", echo)
	dead.kill()
	r.up(dead)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		r.answers(200, "alive")
	}()
	waitFor(t, func() bool { return r.lost.Load() == 1 && r.Stats().Waiting == 1 })
	r.up(start(t, "a", answering("alive")))
	<-answered
	r.answers(200, "alive")
	if n := r.lost.Load(); n != 1 {
		t.Errorf("lost %d times", n)
	}
	r.settled()
}

// Nor is an instance given up because the provider has no file descriptor left.
func TestALocalShortageIsNotALostInstance(t *testing.T) {
	var short atomic.Bool
	short.Store(true)
	r := newRig(t, Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if short.Load() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.EMFILE}
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}})
	r.up(start(t, "a", echo))
	r.answers(503, "out of connections")
	short.Store(false)
	r.answers(200, "x")
	if r.lost.Load() != 0 {
		t.Error("the instance counts as lost")
	}
}

// A Unix socket with a full backlog refuses at once, and the forwarder tries again.
func TestAFullBacklogIsWaitedFor(t *testing.T) {
	var left atomic.Int64
	left.Store(5)
	r := newRig(t, Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if left.Add(-1) >= 0 {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.EAGAIN}
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}})
	r.up(start(t, "a", echo))
	r.answers(200, "x")
}
