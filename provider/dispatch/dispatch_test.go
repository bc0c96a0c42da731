package dispatch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// echo is an instance that answers every member with its own body.
type echo struct {
	server  *http.Server
	address string
	// gate, if not nil, delays answers: each batch that comes while it is set
	// receives from it before the answer. mu guards it.
	mu   sync.Mutex
	gate chan struct{}
	// arrived counts the batches that have come to a gate.
	arrived atomic.Int64
	batches atomic.Int64
	largest atomic.Int64
	// broken makes it hang up without an answer; refusing makes it answer 413.
	broken, refusing atomic.Bool
	// exec is the engine's time that it reports in µs; it reports none if 0. status
	// is its answer to each member; 0 means 200.
	exec, status atomic.Int64
	// open counts its open connections.
	open atomic.Int64
}

func newEcho(t *testing.T, gate chan struct{}) *echo {
	t.Helper()
	e := &echo{gate: gate, address: filepath.Join(t.TempDir(), "s")}
	listener, err := net.Listen("unix", e.address)
	if err != nil {
		t.Fatal(err)
	}
	e.server = &http.Server{Handler: e, ConnState: func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			e.open.Add(1)
		case http.StateClosed:
			e.open.Add(-1)
		}
	}}
	go e.server.Serve(listener)
	t.Cleanup(func() { e.server.Close() })
	return e
}

func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	requests, err := frame.DecodeRequests(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	gate := e.gate
	e.mu.Unlock()
	e.arrived.Add(1)
	if gate != nil {
		<-gate
	}
	if e.broken.Load() {
		panic(http.ErrAbortHandler)
	}
	if e.refusing.Load() {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		return
	}
	e.batches.Add(1)
	for n := int64(len(requests)); ; {
		old := e.largest.Load()
		if n <= old || e.largest.CompareAndSwap(old, n) {
			break
		}
	}
	responses := make([]frame.Response, len(requests))
	for i, q := range requests {
		responses[i] = frame.Response{Status: cmp.Or(int(e.status.Load()), 200), Header: http.Header{}, Body: q.Body}
	}
	if us := e.exec.Load(); us > 0 {
		w.Header().Set(frame.ExecHeader, strconv.FormatInt(us, 10))
		w.Header().Set(frame.ElementsHeader, "12")
	}
	buffers, total := frame.EncodeResponses(responses)
	w.Header().Set("Content-Length", strconv.FormatInt(total, 10))
	for _, b := range buffers {
		w.Write(b)
	}
}

// record counts what the dispatcher records.
type record struct{ batches, queued, drops atomic.Int64 }

func (r *record) ObserveBatch(int, time.Duration, *frame.Trace) { r.batches.Add(1) }
func (r *record) ObserveQueue(time.Duration, *frame.Trace)      { r.queued.Add(1) }
func (r *record) AddDrop(metrics.Reason)                        { r.drops.Add(1) }

func times(b int, t time.Duration) []time.Duration {
	out := make([]time.Duration, b)
	for i := range out {
		out[i] = t
	}
	return out
}

func instance(id string, b int) batching.Instance {
	return batching.Instance{ID: cluster.InstanceID(id), Config: cluster.Config{Batch: b}, Exec: times(b, time.Millisecond), Rate: 1}
}

// patience is longer than the machine may ever stand still. No request is late by it, and
// no instance is lost.
const patience = 10 * time.Minute

func newDispatcher(t *testing.T, policy string, o Options) (*Dispatcher, *record) {
	t.Helper()
	o.ExchangeTimeout = cmp.Or(o.ExchangeTimeout, patience)
	p, err := batching.New(policy, batching.Options{SLO: o.SLO})
	if err != nil {
		t.Fatal(err)
	}
	r := &record{}
	o.Policy, o.Recorder = p, r
	d := New(o)
	t.Cleanup(d.Close)
	return d, r
}

func request(body string) *frame.Request {
	return &frame.Request{Method: "POST", Path: "/", Header: http.Header{}, Body: []byte(body)}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every client gets the answer to its own request with every policy, also if many send at
// once and some hang up.
func TestEachRequestIsAnsweredOnceAndAsItself(t *testing.T) {
	for _, policy := range batching.Names() {
		t.Run(policy, func(t *testing.T) {
			d, _ := newDispatcher(t, policy, Options{SLO: 400 * time.Millisecond})
			for _, id := range []string{"a", "b"} {
				e := newEcho(t, nil)
				d.Up(instance(id, 3), "unix", e.address)
			}
			var wait sync.WaitGroup
			for client := range 32 {
				wait.Go(func() {
					for i := range 50 {
						body := fmt.Sprint(client, "/", i)
						ctx, cancel := context.WithCancel(context.Background())
						if i%7 == 0 {
							cancel()
						}
						got, err := d.Invoke(ctx, request(body))
						cancel()
						switch {
						case errors.Is(err, context.Canceled):
						case errors.Is(err, ErrLate): // An answer, too, on a slow machine.
						case err != nil:
							t.Error(err)
						case string(got.Body) != body:
							t.Errorf("%q is answered with %q", body, got.Body)
						}
					}
				})
			}
			wait.Wait()
			if s := d.Stats(); s.Waiting != 0 || s.Arrivals != 32*50 {
				t.Errorf("afterwards %d wait of %d", s.Waiting, s.Arrivals)
			}
		})
	}
}

func TestRequestsThatWaitAreBatched(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience})
	gate := make(chan struct{})
	e := newEcho(t, gate)
	d.Up(instance("a", 16), "unix", e.address)
	var wait sync.WaitGroup
	invoke := func(n int) {
		for range n {
			wait.Go(func() {
				if _, err := d.Invoke(t.Context(), request("x")); err != nil {
					t.Error(err)
				}
			})
		}
	}
	invoke(1)
	waitFor(t, func() bool { return !idle(d, "a") })
	invoke(10)
	waitFor(t, func() bool { return d.Stats().Waiting == 10 })
	close(gate)
	wait.Wait()
	if e.batches.Load() != 2 || e.largest.Load() != 10 {
		t.Errorf("%d batches, the largest of %d; want 2 and 10", e.batches.Load(), e.largest.Load())
	}
}

func TestLostInstanceIsRetriedOnceElsewhere(t *testing.T) {
	var lost atomic.Int64
	d, r := newDispatcher(t, batching.SharedName, Options{SLO: patience, OnLost: func(cluster.InstanceID, error) { lost.Add(1) }})
	bad, good := newEcho(t, nil), newEcho(t, nil)
	bad.broken.Store(true)
	d.Up(instance("bad", 4), "unix", bad.address)
	done := make(chan error, 1)
	go func() {
		_, err := d.Invoke(t.Context(), request("x"))
		done <- err
	}()
	waitFor(t, func() bool { return lost.Load() == 1 })
	d.Up(instance("good", 4), "unix", good.address)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// After the second loss the request is not run again.
	good.broken.Store(true)
	bad2 := newEcho(t, nil)
	bad2.broken.Store(true)
	d.Up(instance("bad2", 4), "unix", bad2.address)
	if _, err := d.Invoke(t.Context(), request("x")); !errors.Is(err, ErrInstanceLost) {
		t.Errorf("error %v", err)
	}
	waitFor(t, func() bool { return lost.Load() == 3 })
	if r.drops.Load() != 1 {
		t.Errorf("%d drops", r.drops.Load())
	}
}

func TestWhatCannotBeMetIsAnsweredEarly(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: 100 * time.Millisecond})
	gate := make(chan struct{})
	e := newEcho(t, gate)
	d.Up(instance("a", 4), "unix", e.address)
	first := make(chan error, 1)
	go func() {
		_, err := d.InvokePatiently(t.Context(), request("x"), patience)
		first <- err
	}()
	waitFor(t, func() bool { return !idle(d, "a") })
	began := time.Now()
	if _, err := d.Invoke(t.Context(), request("y")); !errors.Is(err, ErrLate) {
		t.Errorf("error %v", err)
	}
	if waited := time.Since(began); waited < 90*time.Millisecond {
		t.Errorf("rejected after %v, although an answer was possible until 94 ms", waited)
	}
	close(gate)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestColdRequestsAreHeldAndBounded(t *testing.T) {
	var woken atomic.Int64
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: 10 * time.Millisecond, ColdWait: patience, QueueLimit: 100, OnCold: func() { woken.Add(1) }})
	var wait sync.WaitGroup
	var full, served atomic.Int64
	for range 150 {
		wait.Go(func() {
			_, err := d.Invoke(t.Context(), request("x"))
			switch {
			case errors.Is(err, ErrQueueFull):
				full.Add(1)
			case err != nil:
				t.Error(err)
			default:
				served.Add(1)
			}
		})
	}
	waitFor(t, func() bool { return full.Load() == 50 && d.Stats().Waiting == 100 })
	e := newEcho(t, nil)
	d.Up(instance("a", 8), "unix", e.address)
	wait.Wait()
	if served.Load() != 100 || woken.Load() != 100 {
		t.Errorf("%d served, %d calls to wake", served.Load(), woken.Load())
	}
}

func TestColdWithoutAnInstanceEnds(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: 10 * time.Millisecond, ColdWait: 10 * time.Millisecond})
	if _, err := d.Invoke(t.Context(), request("x")); !errors.Is(err, ErrCold) {
		t.Errorf("error %v", err)
	}
}

func TestDrainWaitsForWhatIsInFlight(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience})
	gate := make(chan struct{})
	e := newEcho(t, gate)
	d.Up(instance("a", 1), "unix", e.address)
	answered := make(chan error, 1)
	go func() {
		_, err := d.Invoke(t.Context(), request("x"))
		answered <- err
	}()
	waitFor(t, func() bool { return !idle(d, "a") })
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := d.Drain(short, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("drained while a batch ran: %v", err)
	}
	close(gate)
	if err := d.Drain(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	d.Forget("a")
}

// An instance that stops waits until the provider has closed its idle connections.
func TestDrainClosesIdleConnections(t *testing.T) {
	for name, last := range map[string]func(*Dispatcher){
		"drained": func(d *Dispatcher) { _ = d.Drain(t.Context(), "a") },
		"lost": func(d *Dispatcher) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.lose(time.Now(), "a", errSilent)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience})
			e := newEcho(t, nil)
			d.Up(instance("a", 1), "unix", e.address)
			if _, err := d.Invoke(t.Context(), request("x")); err != nil || e.open.Load() != 1 {
				t.Fatalf("%d connections are kept: %v", e.open.Load(), err)
			}
			last(d)
			waitFor(t, func() bool { return e.open.Load() == 0 })
		})
	}
}

func TestCloseAnswersWhatWaits(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience, ColdWait: patience})
	answered := make(chan error, 1)
	go func() {
		_, err := d.Invoke(t.Context(), request("x"))
		answered <- err
	}()
	waitFor(t, func() bool { return d.Stats().Waiting == 1 })
	d.Close()
	if err := <-answered; !errors.Is(err, ErrClosed) {
		t.Errorf("error %v", err)
	}
	if _, err := d.Invoke(t.Context(), request("x")); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v", err)
	}
}

func TestLargeBodiesPassUnharmed(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience})
	e := newEcho(t, nil)
	d.Up(instance("a", 4), "unix", e.address)
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			body := bytes.Repeat([]byte{byte(i)}, 1<<20+i)
			got, err := d.Invoke(t.Context(), &frame.Request{Method: "POST", Path: "/", Body: body})
			if err != nil || !bytes.Equal(got.Body, body) {
				t.Errorf("body %d: %v", i, err)
			}
		})
	}
	wait.Wait()
}

func idle(d *Dispatcher, id cluster.InstanceID) bool { return !d.Stats().Instances[id].IsZero() }

func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within a minute")
		}
	}
}

func BenchmarkInvoke(b *testing.B) {
	p, _ := batching.New(batching.SharedName, batching.Options{SLO: time.Second})
	d := New(Options{Policy: p, SLO: time.Second, Recorder: &record{}})
	defer d.Close()
	e := &echo{address: filepath.Join(b.TempDir(), "s")}
	listener, err := net.Listen("unix", e.address)
	if err != nil {
		b.Fatal(err)
	}
	e.server = &http.Server{Handler: e, ConnState: func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			e.open.Add(1)
		case http.StateClosed:
			e.open.Add(-1)
		}
	}}
	go e.server.Serve(listener)
	defer e.server.Close()
	d.Up(instance("a", 1), "unix", e.address)
	r := request("hello")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Invoke(context.Background(), r); err != nil {
			b.Fatal(err)
		}
	}
}

func TestReconfigureCarriesOverWhatWaits(t *testing.T) {
	d, _ := newDispatcher(t, batching.InFlessName, Options{SLO: patience})
	e := newEcho(t, nil)
	d.Up(instance("a", 8), "unix", e.address)
	answered := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := d.Invoke(t.Context(), request("x"))
			answered <- err
		}()
	}
	// INFless' batch would wait for minutes until it is full; the shared queue's does not.
	waitFor(t, func() bool { return d.Stats().Waiting == 3 })
	d.Reconfigure(batching.NewShared(batching.Options{SLO: patience / 2}), patience/2, false)
	for range 3 {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
}
