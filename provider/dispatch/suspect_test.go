package dispatch

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// rig is a dispatcher in a bubble with instances in memory. Until an instance is stopped it
// answers as echo does; then its connections are taken and nothing is answered, as by a
// process after SIGSTOP, until it is continued.
type rig struct {
	*Dispatcher
	t         *testing.T
	mu        sync.Mutex
	instances map[string]*process
	lost      chan cluster.InstanceID
	suspects  chan bool
}

type process struct {
	pipes
	echo
	mu      sync.Mutex
	running chan struct{} // closed while it runs
}

func (p *process) stop() { p.mu.Lock(); defer p.mu.Unlock(); p.running = make(chan struct{}) }
func (p *process) goOn() { p.mu.Lock(); defer p.mu.Unlock(); close(p.running) }
func (p *process) wait() {
	p.mu.Lock()
	running := p.running
	p.mu.Unlock()
	<-running
}

func (p *process) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.wait()
	p.echo.ServeHTTP(w, r)
	p.wait()
}

func newRig(t *testing.T, o Options) *rig {
	r := &rig{t: t, instances: map[string]*process{}, lost: make(chan cluster.InstanceID, 4), suspects: make(chan bool, 64)}
	o.OnLost = func(id cluster.InstanceID, _ error) { r.lost <- id }
	o.OnSuspect = func(_ cluster.InstanceID, suspect bool) { r.suspects <- suspect }
	o.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		r.mu.Lock()
		p := r.instances[address]
		r.mu.Unlock()
		p.conns <- theirs
		return ours, nil
	}
	o.ExchangeTimeout = 10 * time.Second
	r.Dispatcher, _ = newDispatcher(t, batching.SharedName, o)
	return r
}

// start starts an instance that takes batches.
func (r *rig) start(id string) *process {
	p := r.serve(id)
	r.Up(instance(id, 4), "fake", id)
	return p
}

// serve starts an instance of which the dispatcher does not know.
func (r *rig) serve(id string) *process {
	p := &process{pipes: pipes{make(chan net.Conn, 64), make(chan struct{})}, running: make(chan struct{})}
	close(p.running)
	r.mu.Lock()
	r.instances[id] = p
	r.mu.Unlock()
	server := &http.Server{Handler: p}
	go server.Serve(p)
	r.t.Cleanup(func() {
		select {
		case <-p.running:
		default:
			p.goOn()
		}
		server.Close()
	})
	return p
}

// send begins a request and returns where its error will be.
func (r *rig) send() chan error {
	done := make(chan error, 1)
	go func() {
		_, err := r.Invoke(r.t.Context(), request("x"))
		done <- err
	}()
	return done
}

// A stopped instance costs the request that it has some 200 ms, if another is there, and
// those that come then nothing. It is lost after 2 s.
func TestStoppedInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Second})
		a := r.start("a")
		if err := <-r.send(); err != nil {
			t.Fatal(err)
		}
		a.stop()
		stuck, began := r.send(), time.Now()
		synctest.Wait()
		r.start("b")
		time.Sleep(minOverdue + time.Millisecond)
		if err := <-r.send(); err != nil || time.Since(began) > 50*time.Millisecond {
			t.Errorf("beside a stopped instance: %v after %v", err, time.Since(began))
		}
		if err := <-stuck; err != nil {
			t.Errorf("on a stopped instance: %v", err)
		}
		if took := time.Since(began); took > 300*time.Millisecond {
			t.Errorf("a request went from a stopped instance to another after %v", took)
		}
		if !<-r.suspects {
			t.Error("the instance is not suspected")
		}
		if id := <-r.lost; id != "a" || time.Since(began) > 3*time.Second {
			t.Errorf("%s was lost after %v", id, time.Since(began))
		}
	})
}

// One that goes on after half a second serves again, and nothing is lost.
func TestStoppedInstanceGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Second, ColdWait: time.Minute})
		a := r.start("a")
		a.stop()
		stuck := r.send()
		if suspect := <-r.suspects; !suspect {
			t.Fatal("it is not suspected")
		}
		time.Sleep(500 * time.Millisecond)
		a.goOn()
		if suspect := <-r.suspects; suspect {
			t.Fatal("it is suspected twice")
		}
		if err := <-stuck; err != nil {
			t.Errorf("the request that it had: %v", err)
		}
		if err := <-r.send(); err != nil {
			t.Errorf("the next request: %v", err)
		}
		if len(r.lost) > 0 {
			t.Error("it is lost")
		}
	})
}

// A slow instance that answers when it is asked goes on, and runs nothing twice.
func TestSlowInstanceIsNotSuspected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: 5 * time.Second})
		a := r.start("a")
		gate := make(chan struct{})
		a.echo.gate = gate
		slow := r.send()
		time.Sleep(3 * time.Second)
		close(gate)
		if err := <-slow; err != nil {
			t.Error(err)
		}
		if n := a.batches.Load(); n != 1 || len(r.suspects) > 0 || len(r.lost) > 0 {
			t.Errorf("%d batches, %d times suspected, %d times lost", n, len(r.suspects), len(r.lost))
		}
	})
}

// With Once, what a stopped instance has runs nowhere else; it fails when that is lost.
func TestOnceRunsNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: 5 * time.Second, Once: true})
		a := r.start("a")
		gate := make(chan struct{})
		a.echo.gate = gate
		stuck := r.send()
		synctest.Wait() // It executes the batch.
		a.stop()
		a.broken.Store(true)
		go func() { // The backend kills it.
			<-r.lost
			a.goOn()
			close(gate)
		}()
		b := r.start("b")
		if err := <-stuck; !errors.Is(err, ErrInstanceLost) {
			t.Errorf("error %v", err)
		}
		if n := b.batches.Load(); n != 0 {
			t.Errorf("another instance executed %d batches", n)
		}
		if err := <-r.send(); err != nil {
			t.Errorf("the next request: %v", err)
		}
	})
}

// A request whose answer does not come is refused some time after its objective, with all
// that wait for the same instance.
func TestNoAnswerComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objective = 100 * time.Millisecond
		r := newRig(t, Options{SLO: objective})
		a := r.start("a")
		a.echo.gate = make(chan struct{})
		began := time.Now()
		first := r.send()
		synctest.Wait()
		var rest []chan error
		for range 3 {
			rest = append(rest, r.send())
		}
		if err := <-first; !errors.Is(err, ErrLate) || time.Since(began) != 2*objective {
			t.Errorf("%v after %v, want a refusal after %v", err, time.Since(began), 2*objective)
		}
		for _, done := range rest {
			if err := <-done; !errors.Is(err, ErrLate) || time.Since(began) > 2*objective {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		}
		close(a.echo.gate)
		synctest.Wait()
		if !idle(r.Dispatcher, "a") {
			t.Error("the instance is not free again")
		}
		if err := <-r.send(); err != nil {
			t.Errorf("the next request: %v", err)
		}
	})
}

// The same of an instance that is too slow for the objective altogether is answered late.
func TestSlowInstanceAnswersLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: 100 * time.Millisecond})
		a := r.start("a")
		slow := instance("a", 4)
		slow.Slow = true
		r.Up(slow, "fake", "a")
		a.echo.gate = make(chan struct{})
		done := r.send()
		time.Sleep(time.Second)
		close(a.echo.gate)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// panicking panics when an instance is done.
type panicking struct {
	batching.Policy
	armed atomic.Bool
}

func (p *panicking) Done(now time.Time, id cluster.InstanceID) {
	if p.armed.CompareAndSwap(true, false) {
		panic("the policy is wrong")
	}
	p.Policy.Done(now, id)
}

// A panic while a batch is led answers its members with an error, and loses the
// instance, of which nobody knows what it executes.
func TestPanicOfALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Minute})
		a := r.start("a")
		a.echo.gate = make(chan struct{})
		p := &panicking{Policy: r.policy}
		r.Reconfigure(p, time.Minute, false)
		r.Up(instance("a", 4), "fake", "a")
		first := r.send()
		synctest.Wait()
		second, third := r.send(), r.send()
		synctest.Wait()
		p.armed.Store(true)
		close(a.echo.gate)
		if err := <-first; !errors.Is(err, ErrInternal) {
			t.Errorf("error %v", err)
		}
		if id := <-r.lost; id != "a" {
			t.Errorf("%s is lost", id)
		}
		r.start("b")
		for _, done := range []chan error{second, third} {
			if err := <-done; err != nil {
				t.Errorf("a request that waited: %v", err)
			}
		}
	})
}

// The time that a batch leaves its members goes with it.
func TestTimesTravelWithTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		d, _ := newDispatcher(t, batching.SharedName, Options{SLO: 100 * time.Millisecond,
			Dial: func(context.Context, string, string) (net.Conn, error) { return ours, nil }})
		d.Up(instance("a", 4), "fake", "a")
		done := make(chan error, 1)
		go func() {
			_, err := d.Invoke(t.Context(), request("x"))
			done <- err
		}()
		q, err := http.ReadRequest(bufio.NewReader(theirs))
		if err != nil {
			t.Fatal(err)
		}
		if got := q.Header.Get("X-Faas-Infer-Within-Us"); got != "95000" {
			t.Errorf("within %q µs, want 95000: the objective less what the way back takes", got)
		}
		theirs.Close()
		d.Close()
		if err := <-done; err == nil || strings.Contains(err.Error(), "panic") {
			t.Errorf("error %v", err)
		}
	})
}

// An instance that did not read a batch in time serves again once it goes on: the policy does
// not wait for a batch that is gone.
func TestInstanceThatReadsNothingGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: 50 * time.Millisecond})
		a := r.start("a")
		a.stop()
		began := time.Now()
		_, err := r.Invoke(t.Context(), request(strings.Repeat("x", 1<<20)))
		if took := time.Since(began); err == nil || took > 200*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
		a.goOn()
		time.Sleep(time.Second)
		for range 3 {
			if err := <-r.send(); err != nil {
				t.Errorf("once it goes on: %v", err)
			}
		}
	})
}

// An instance that answers while its batch goes on gets the next batch after that one.
func TestAnsweringInstanceFinishesItsBatchFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: 10 * time.Second})
		a := r.start("a")
		a.echo.gate = make(chan struct{})
		slow := r.send()
		synctest.Wait()
		b := r.start("b")
		time.Sleep(time.Second) // It is overdue, put aside, and has answered.
		b.stop()
		if n := a.arrived.Load(); n != 1 {
			t.Errorf("%d batches reached it", n)
		}
		b.goOn()
		close(a.echo.gate)
		if err := <-slow; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if !idle(r.Dispatcher, "a") || r.Dispatcher.up.total != 2 {
			t.Errorf("%d instances are up", r.Dispatcher.up.total)
		}
	})
}
