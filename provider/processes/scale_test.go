package processes

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// Right after a deployment Replicas is the minimum, and soon that many instances are
// ready.
func TestDeployStartsTheMinimum(t *testing.T) {
	try(t, func(r *rig) {
		r.deploy("one", "a")
		r.shows("one", 1, 0)
		r.deploy("two", "a", between(2, 20))
		r.shows("two", 2, 0)
		r.deploy("none", "a", between(0, 20))
		r.shows("none", 0, 0)
		time.Sleep(2 * coldStart)
		r.shows("one", 1, 1)
		r.shows("two", 2, 2)
		r.answered("one", "a")
		if n := r.backend.asked(); n != 3 {
			t.Errorf("%d instances were started, want 3", n)
		}
		r.answered("none", "a") // It waits for its first instance.
		r.shows("none", 1, 1)
	})
}

// Under the conformance suite's load there is a second instance within a minute. A minute
// after the load only the first is left.
func TestScaleUpAndDownFromThroughput(t *testing.T) {
	try(t, func(r *rig) {
		r.deploy("f", "a", between(1, 2))
		r.ready("f", 1)
		if failed := r.load("f", 100*time.Millisecond, 20*time.Second); failed > 0 {
			t.Errorf("%d requests failed", failed)
		}
		r.shows("f", 2, 2)
		if failed := r.load("f", 10*time.Millisecond, 20*time.Second); failed > 0 {
			t.Errorf("%d requests failed", failed)
		}
		r.shows("f", 2, 2)
		time.Sleep(45 * time.Second)
		r.shows("f", 1, 1)
	})
}

func TestScalingSwitchedOff(t *testing.T) {
	try(t, func(r *rig) {
		r.deploy("f", "a", between(2, 2))
		r.shows("f", 2, 0)
		r.ready("f", 2)
		r.load("f", 10*time.Millisecond, 30*time.Second)
		r.shows("f", 2, 2)
		time.Sleep(5 * time.Minute)
		r.shows("f", 2, 2)
		if n := r.backend.asked(); n != 2 {
			t.Errorf("%d instances were started", n)
		}
	})
}

func TestScaleByCapacity(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour { return behaviour{AnswerAfter: time.Second} })
		r.deploy("f", "a", func(f *provider.Function) {
			f.Inference.ScaleType, f.Inference.ScaleTarget = annotation.TypeCapacity, 2
		})
		r.ready("f", 1)
		if failed := r.load("f", 100*time.Millisecond, 30*time.Second); failed > 0 { // Ten in flight.
			t.Errorf("%d requests failed", failed)
		}
		if d := r.describe("f"); d.Ready < 5 || d.Ready > 6 {
			t.Errorf("%d instances for 10 requests in flight, 2 each", d.Ready)
		}
	})
}

func TestScaleRoute(t *testing.T) {
	try(t, func(r *rig) {
		r.deploy("f", "a")
		r.ready("f", 1)
		scale := func(n uint64) {
			t.Helper()
			if err := r.Scale(full("f"), n); err != nil {
				t.Fatal(err)
			}
		}
		scale(3)
		r.shows("f", 3, 1)
		r.ready("f", 3)
		time.Sleep(time.Hour)
		r.shows("f", 3, 3)
		// To zero and back by a request.
		scale(0)
		r.shows("f", 0, 0)
		r.until("none lives", func() bool { return len(r.backend.living()) == 0 })
		time.Sleep(time.Hour)
		r.shows("f", 0, 0)
		r.answered("f", "a")
		r.shows("f", 1, 1)
		// The same deployment again does not undo the number that the route has set.
		scale(2)
		r.ready("f", 2)
		again := r.function("f", "a")
		again.Replicas = 2
		if _, err := r.Deploy(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		r.shows("f", 2, 2)
		if err := r.Scale(full("nobody"), 1); err == nil {
			t.Error("a function that is not deployed can be scaled")
		}
	})
}

// Requests in flight when a function is scaled to zero are answered.
func TestScaleToZeroLosesNothing(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour { return behaviour{AnswerAfter: 20 * time.Second} })
		r.deploy("f", "a")
		r.ready("f", 1)
		answered := make(chan error)
		go func() {
			_, err := r.invoke("f", "x")
			answered <- err
		}()
		time.Sleep(time.Second)
		if err := r.Scale(full("f"), 0); err != nil {
			t.Fatal(err)
		}
		if err := <-answered; err != nil {
			t.Errorf("a request in flight: %v", err)
		}
		r.until("none lives", func() bool { return len(r.backend.living()) == 0 })
	})
}

func TestScaleToZeroWhenIdle(t *testing.T) {
	try(t, func(r *rig) {
		r.deploy("f", "a", func(f *provider.Function) {
			f.Inference.MinReplicas, f.Inference.ScaleZero, f.Inference.ZeroDuration = 2, true, time.Minute
		})
		r.ready("f", 2)
		time.Sleep(50 * time.Second)
		r.answered("f", "a")
		time.Sleep(55 * time.Second)
		r.shows("f", 2, 2)
		time.Sleep(10 * time.Second)
		r.shows("f", 0, 0)
		r.answered("f", "a")
		r.ready("f", 2)
	})
}
