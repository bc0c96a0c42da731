package dispatch

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// A parked instance gets no batch. A request that finds no other instance wakes the engine
// like a cold one. It does not count as cold if that instance then serves it.
func TestParkedInstancesGetNothing(t *testing.T) {
	woke := make(chan struct{}, 10)
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: 10 * time.Millisecond, ColdWait: patience, OnCold: func() { woke <- struct{}{} }})
	e := newEcho(t, nil)
	up := func(id cluster.InstanceID) { d.Up(instance(string(id), 4), "unix", e.address) }
	parked := func(id cluster.InstanceID) {
		t.Helper()
		waitFor(t, func() bool { return d.Park(id) })
	}
	answers := make(chan error)
	invoke := func() {
		go func() {
			_, err := d.Invoke(t.Context(), request("x"))
			answers <- err
		}()
		<-woke
	}
	answered := func(n int) {
		t.Helper()
		for range n {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
	}
	cold := func(want uint64) {
		t.Helper()
		if got := d.Stats().Cold; got != want {
			t.Errorf("%d requests were cold, want %d", got, want)
		}
	}

	up("a")
	parked("a")
	if d.Park("a") || d.Park("none") {
		t.Error("what is parked, or not there, was parked")
	}
	invoke()
	invoke()
	waitFor(t, func() bool { return d.Stats().Waiting == 2 })
	if e.batches.Load() != 0 {
		t.Error("a parked instance got a batch")
	}
	up("a")
	answered(2)
	cold(0)

	// Another instance must be started, so the request was cold after all.
	parked("a")
	invoke()
	up("b")
	answered(1)
	cold(1)

	// It was cold, too, if the parked instance is retired or dies.
	parked("b")
	invoke()
	if err := d.Drain(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	cold(1)
	d.Forget("b")
	cold(2)
	up("a") // It was to leave, and does not come back.
	if n := d.Stats().Waiting; n != 1 {
		t.Errorf("%d wait", n)
	}
	up("c")
	answered(1)
	cold(2)
}

// No instance is parked while there is work.
func TestWhatIsAtWorkIsNotParked(t *testing.T) {
	gate := make(chan struct{})
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience})
	e := newEcho(t, gate)
	d.Up(instance("a", 1), "unix", e.address)
	answered := make(chan error)
	go func() {
		_, err := d.Invoke(t.Context(), request("x"))
		answered <- err
	}()
	waitFor(t, func() bool { return !idle(d, "a") })
	if d.Park("a") {
		t.Error("an instance that executes was parked")
	}
	gate <- struct{}{}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	waitFor(t, func() bool { return d.Park("a") })
}
