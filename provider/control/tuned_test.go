package control

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/papers/batch"
	"github.com/faas-infer/faas-infer/provider"
)

// set returns a function's chosen config and timeout.
func (r *rig) set(name string) (choice cluster.Config, timeout time.Duration) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.functions[full(name)].tuned
	if t == nil {
		r.t.Fatalf("%s is not tuned", name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.choice, t.timeout
}

// All instances of a function with the policy batch have one config, and its buffer
// follows the load (BATCH §III). Every request is answered in time.
func TestTheBufferFollowsTheLoad(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.take(func(cluster.Config) float64 { return 1 })
		r.measured("f", "model", within(200*time.Millisecond), func(f *provider.Function) { f.Inference.Policy = batch.Name })
		if failed := r.load("f", 2*time.Millisecond, 30*time.Second); failed > 0 {
			t.Errorf("%d requests were not answered", failed)
		}
		many, timeout := r.set("f")
		if many.Batch < 2 || timeout <= 0 || timeout > 200*time.Millisecond {
			t.Errorf("at 500 requests/s it is set to %v, %v", many, timeout)
		}
		for _, in := range r.backend.living() {
			if in.Config.CPU != many.CPU {
				t.Errorf("an instance has %v, the choice is %v", in.Config, many)
			}
		}
		// At one request in five seconds waiting for others is not worth it, unless all
		// are in time anyway.
		if failed := r.load("f", 5*time.Second, 2*time.Minute); failed > 0 {
			t.Errorf("%d requests were not answered", failed)
		}
	})
}

// Other policies have no setting, and a function may change from one to the other.
func TestOtherPoliciesAreNotTuned(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "model", within(200*time.Millisecond))
		r.answered("f", "model")
		r.mu.Lock()
		if r.functions[full("f")].tuned != nil {
			t.Error("the shared queue is tuned")
		}
		r.mu.Unlock()
		buffered := func(f *provider.Function) {
			f.Inference.Policy, f.Inference.Stated = batch.Name, f.Inference.Stated.With(batch.BudgetKey, "0.5")
		}
		r.deploy("f", "model", within(200*time.Millisecond), buffered)
		r.until("changed", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.functions[full("f")].tuned != nil
		})
		if failed := r.load("f", 10*time.Millisecond, 20*time.Second); failed > 0 {
			t.Errorf("%d requests were not answered", failed)
		}
		if choice, _ := r.set("f"); choice.Batch < 1 {
			t.Errorf("it is set to %v", choice)
		}
		r.deploy("f", "model", within(200*time.Millisecond))
		r.until("changed back", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.functions[full("f")].tuned == nil
		})
		r.answered("f", "model")
	})
}

// If others hold most of the machine, the optimiser chooses a config that there is room
// for, and the first answer does not wait until others are gone.
func TestTheBufferTakesTheRoomThereIs(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.widen(4000)
		r.backend.Mu.Lock()
		r.backend.Machines[0].Others.CPU = 3500
		r.backend.Mu.Unlock()
		buffered := func(f *provider.Function) { f.Inference.Policy = batch.Name }
		r.measured("f", "model", within(200*time.Millisecond), buffered)
		began := time.Now()
		r.answered("f", "model")
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("the first answer took %v", took)
		}
		if failed := r.load("f", 20*time.Millisecond, 20*time.Second); failed > 0 {
			t.Errorf("%d requests were not answered", failed)
		}
		if choice, _ := r.set("f"); choice.CPU > 500 || choice.CPU < 1 {
			t.Errorf("%v was chosen where 500 millicores are free", choice)
		}
	})
}
