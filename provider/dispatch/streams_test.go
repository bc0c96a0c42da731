package dispatch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/batching"
)

// twofold is an instance that executes two batches of one at the same time.
func twofold(id string) batching.Instance {
	in := instance(id, 1)
	in.Config.Concurrency = 2
	return in
}

// An instance with a concurrency of two executes two batches at the same time, and no third.
// What the dispatcher knows of it is of both: it is not idle, not parked and not drained while it
// has either.
func TestConcurrentBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Minute})
		a := r.serve("a")
		a.echo.gate = make(chan struct{})
		r.Up(twofold("a"), "fake", "a")
		var sent []chan error
		for range 3 {
			sent = append(sent, r.send())
			synctest.Wait()
		}
		if n := a.arrived.Load(); n != 2 {
			t.Fatalf("the instance has %d batches", n)
		}
		a.echo.gate <- struct{}{}
		synctest.Wait()
		if n := a.arrived.Load(); n != 3 {
			t.Fatalf("after one was answered, %d have come", n)
		}
		a.echo.gate <- struct{}{}
		synctest.Wait()
		if s := r.Stats(); s.Waiting != 0 || !s.Instances["a"].IsZero() || len(s.Instances) != 1 {
			t.Errorf("with one batch in flight: %+v", s)
		}
		if r.Park("a") {
			t.Error("it is parked with a batch")
		}
		drained := make(chan error, 1)
		go func() { drained <- r.Drain(context.Background(), "a") }()
		synctest.Wait()
		select {
		case err := <-drained:
			t.Errorf("it is drained with a batch: %v", err)
		default:
		}
		close(a.echo.gate)
		if err := <-drained; err != nil {
			t.Error(err)
		}
		for _, done := range sent {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// If such an instance stops, its batches all go to another one, and it is lost once.
func TestConcurrentBatchesOfAStoppedInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Minute})
		a := r.serve("a")
		a.stop()
		r.Up(twofold("a"), "fake", "a")
		first, second := r.send(), r.send()
		synctest.Wait()
		b := r.serve("b")
		r.Up(twofold("b"), "fake", "b")
		for _, done := range []chan error{first, second} {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if id := <-r.lost; id != "a" || b.batches.Load() != 2 {
			t.Errorf("%s is lost, and the other one has executed %d batches", id, b.batches.Load())
		}
		time.Sleep(5 * time.Second)
		if len(r.lost) != 0 {
			t.Error("it is lost twice")
		}
	})
}

// A body that gets a shadow executes two batches at the same time, and one again without it, also if
// both are in flight at that moment.
func TestConcurrencyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Minute})
		// This policy sends nothing ahead.
		r.Reconfigure(batching.NewAsyFunc(batching.Options{SLO: time.Minute, MaxBatch: 1}), time.Minute, false)
		a := r.serve("a")
		a.echo.gate = make(chan struct{})
		arrived := func(want int64) {
			t.Helper()
			synctest.Wait()
			if n := int64(a.arrived.Load()); n != want {
				t.Fatalf("the instance got %d batches, not %d", n, want)
			}
		}
		r.Up(instance("a", 1), "fake", "a")
		var sent []chan error
		for range 6 {
			sent = append(sent, r.send())
			synctest.Wait()
		}
		arrived(1)
		r.Up(twofold("a"), "fake", "a")
		arrived(2)
		r.Up(instance("a", 1), "fake", "a")
		arrived(2)
		a.echo.gate <- struct{}{}
		a.echo.gate <- struct{}{}
		arrived(3)
		r.Up(twofold("a"), "fake", "a")
		arrived(4)
		close(a.echo.gate)
		for _, done := range sent {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if s := r.Stats(); s.Waiting != 0 || s.Instances["a"].IsZero() {
			t.Errorf("in the end: %+v", s)
		}
	})
}
