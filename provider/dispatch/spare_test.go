package dispatch

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/async/spare"
)

// spareRig is a dispatcher with one best-effort request on an instance.
type spareRig struct {
	*Dispatcher
	*record
	// gates hold the instances' answers back.
	echoes map[cluster.InstanceID]*echo
	gates  map[cluster.InstanceID]chan struct{}
	answer chan error
	cold   chan struct{}
	lost   chan cluster.InstanceID
}

// slow is an instance that takes these times for a batch of one, two, and so on.
func slow(id cluster.InstanceID, exec ...time.Duration) batching.Instance {
	in := instance(string(id), len(exec))
	in.Exec = exec
	return in
}

// long is so long that no exchange of a test is overdue.
const long = 5 * time.Second

func newSpareRig(t *testing.T, policy string, slo time.Duration, exec []time.Duration, ids ...cluster.InstanceID) *spareRig {
	t.Helper()
	r := &spareRig{echoes: map[cluster.InstanceID]*echo{}, gates: map[cluster.InstanceID]chan struct{}{}, answer: make(chan error, 1), cold: make(chan struct{}, 10), lost: make(chan cluster.InstanceID, 10)}
	r.Dispatcher, r.record = newDispatcher(t, policy, Options{SLO: slo, ColdWait: patience,
		OnCold: func() { r.cold <- struct{}{} }, OnLost: func(id cluster.InstanceID, _ error) { r.lost <- id }})
	for _, id := range ids {
		r.gates[id] = make(chan struct{})
		r.echoes[id] = newEcho(t, r.gates[id])
		r.Up(slow(id, exec...), "unix", r.echoes[id].address)
		time.Sleep(time.Millisecond) // So that the first is idle for longest.
	}
	return r
}

// begin sends a best-effort request, which the instance gets.
func (r *spareRig) begin(t *testing.T, id cluster.InstanceID) {
	t.Helper()
	go func() {
		got, err := InvokeSpare(r.Dispatcher, request("spare"))
		if err == nil && (string(got.Body) != "spare" || got.Instance != string(id)) {
			t.Errorf("%s answered %q", got.Instance, got.Body)
		}
		if err == nil && got.Used <= 0 {
			t.Error("the answer says that it used nothing")
		}
		r.answer <- err
	}()
	waitFor(t, func() bool { return r.echoes[id].arrived.Load() == 1 })
}

// A best-effort request runs on the only instance, and is no load. An ordinary one that comes
// meanwhile starts no instance and is the next, with every policy.
func TestSpareRunsOnAnIdleInstance(t *testing.T) {
	for _, policy := range batching.Names() {
		t.Run(policy, func(t *testing.T) {
			r := newSpareRig(t, policy, time.Minute, times(1, long), "a")
			before := r.Stats()
			r.begin(t, "a")
			if _, err := InvokeSpare(r.Dispatcher, request("x")); !errors.Is(err, spare.ErrOccupied) {
				t.Errorf("a second one: %v", err)
			}
			ordinary := make(chan error, 1)
			go func() {
				_, err := r.Invoke(t.Context(), request("ordinary"))
				ordinary <- err
			}()
			waitFor(t, func() bool { return r.Stats().Waiting == 1 })
			if _, err := InvokeSpare(r.Dispatcher, request("x")); !errors.Is(err, spare.ErrOccupied) {
				t.Errorf("one before an ordinary request: %v", err)
			}
			// The controller may change its times meanwhile.
			r.Up(slow("a", 2*long), "unix", r.echoes["a"].address)
			p, err := batching.New(policy, batching.Options{SLO: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			r.Reconfigure(p, time.Minute, false)
			if n := r.echoes["a"].arrived.Load(); n != 1 {
				t.Fatalf("it got %d batches at a time", n)
			}
			close(r.gates["a"])
			if err := <-r.answer; err != nil {
				t.Error(err)
			}
			if err := <-ordinary; err != nil {
				t.Error(err)
			}
			after := r.Stats()
			if after.Arrivals != before.Arrivals+1 || after.Cold != 0 || len(r.cold) > 0 || after.InTime != 1 || r.queued.Load() != 1 {
				t.Errorf("%+v, %d cold, %d queued", after, len(r.cold), r.queued.Load())
			}
		})
	}
}

// With two idle instances, an ordinary request is answered at once by the other one.
func TestSpareDelaysNobody(t *testing.T) {
	r := newSpareRig(t, batching.SharedName, patience, times(1, long), "a", "b")
	r.begin(t, "a")
	close(r.gates["b"])
	for range 5 {
		if got, err := r.Invoke(t.Context(), request("x")); err != nil || got.Instance != "b" {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	close(r.gates["a"])
	if err := <-r.answer; err != nil {
		t.Error(err)
	}
}

// The only instance is lent only if a full batch is still in time afterwards: 40 + 150 ms.
func TestSpareNeedsSlack(t *testing.T) {
	for name, test := range map[string]struct {
		slo  time.Duration
		own  time.Duration
		ids  []cluster.InstanceID
		runs bool
	}{
		"190 of 195 ms":           {200 * time.Millisecond, 0, []cluster.InstanceID{"a"}, true},
		"190 of 189 ms":           {194 * time.Millisecond, 0, []cluster.InstanceID{"a"}, false},
		"another idle instance":   {160 * time.Millisecond, 0, []cluster.InstanceID{"a", "b"}, true},
		"requests ask for 160 ms": {patience, 160 * time.Millisecond, []cluster.InstanceID{"a"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSpareRig(t, batching.SharedName, test.slo, []time.Duration{40 * time.Millisecond, 80 * time.Millisecond, 120 * time.Millisecond, 150 * time.Millisecond}, test.ids...)
			for _, gate := range r.gates {
				close(gate)
			}
			if test.own > 0 {
				q := request("x")
				q.Objective = test.own
				// Its answer may be late on a busy machine.
				_, _ = r.Invoke(t.Context(), q)
			}
			if _, err := InvokeSpare(r.Dispatcher, request("x")); (err == nil) != test.runs || err != nil && !errors.Is(err, spare.ErrOccupied) {
				t.Error(err)
			}
		})
	}
}

func TestTightest(t *testing.T) {
	now := time.Unix(1000, 0)
	var seen tightest
	arrive := func(after, objective time.Duration) {
		q := request("x")
		q.Objective = objective
		seen.arrive(&call{request: q, arrived: now.Add(after)})
	}
	want := func(after, want time.Duration) {
		t.Helper()
		if got := seen.within(now.Add(after), time.Second); got != want {
			t.Errorf("%v after %v, want %v", got, after, want)
		}
	}
	arrive(0, 0)
	want(0, time.Second)
	arrive(0, 50*time.Millisecond)
	arrive(30*time.Second, 80*time.Millisecond)
	want(time.Minute, 50*time.Millisecond)
	want(61*time.Second, time.Second)
	arrive(62*time.Second, 80*time.Millisecond)
	want(62*time.Second, 80*time.Millisecond)
	arrive(70*time.Second, 2*time.Second)
	want(70*time.Second, 80*time.Millisecond)
}

// An instance with a best-effort request is not parked, and its drain waits for the answer.
func TestDrainWaitsForASpareRequest(t *testing.T) {
	r := newSpareRig(t, batching.SharedName, patience, times(1, long), "a")
	r.begin(t, "a")
	if r.Park("a") {
		t.Error("it was parked")
	}
	drained := make(chan error, 1)
	go func() { drained <- r.Drain(t.Context(), "a") }()
	waitFor(t, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return !r.instances["a"].up })
	select {
	case <-drained:
		t.Error("it was drained during the request")
	default:
	}
	close(r.gates["a"])
	if err := errors.Join(<-r.answer, <-drained); err != nil {
		t.Error(err)
	}
	if _, err := InvokeSpare(r.Dispatcher, request("x")); !errors.Is(err, spare.ErrOccupied) {
		t.Errorf("a drained instance: %v", err)
	}
}

// An instance that takes far longer than usual gets ordinary requests again, and one that breaks
// off is lost.
func TestSpareOnASickInstance(t *testing.T) {
	r := newSpareRig(t, batching.SharedName, patience, times(1, 4*time.Millisecond), "a")
	r.begin(t, "a")
	ordinary := make(chan error, 1)
	go func() {
		_, err := r.Invoke(t.Context(), request("x"))
		ordinary <- err
	}()
	waitFor(t, func() bool { return r.echoes["a"].arrived.Load() >= 2 }) // Also a health question.
	close(r.gates["a"])
	if err := errors.Join(<-r.answer, <-ordinary); err != nil {
		t.Error(err)
	}
	r.echoes["a"].broken.Store(true)
	waitFor(t, func() bool { return idle(r.Dispatcher, "a") })
	if _, err := InvokeSpare(r.Dispatcher, request("x")); !errors.Is(err, ErrInstanceLost) {
		t.Error(err)
	}
	if id := <-r.lost; id != "a" {
		t.Error(id)
	}
}

// A request that the instance refuses is not its fault.
func TestSpareIsRefused(t *testing.T) {
	r := newSpareRig(t, batching.SharedName, patience, times(1, 4*time.Millisecond), "a")
	close(r.gates["a"])
	r.echoes["a"].refusing.Store(true)
	if _, err := InvokeSpare(r.Dispatcher, request("x")); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	r.echoes["a"].refusing.Store(false)
	r.echoes["a"].status.Store(http.StatusTeapot)
	if got, err := InvokeSpare(r.Dispatcher, request("x")); err != nil || got.Status != http.StatusTeapot || len(r.lost) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
}
