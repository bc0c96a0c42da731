package control

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/variant"
)

// wholeCore gives each instance a core, so its times do not depend on a quota.
func wholeCore(f *provider.Function) {
	f.Inference.Limits.CPU, f.Inference.Requests.CPU = 1000, 1000
	f.Inference.MaxReplicas = 1
}

func (r *rig) state(name string) variant.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	worst := variant.Inactive
	for _, in := range r.functions[full(name)].Instances {
		worst = max(worst, in.follower.State())
	}
	return worst
}

// loaded runs f under a steady load, and fails the test if a request fails.
func (r *rig) loaded(name string, interval, d time.Duration, f func()) {
	r.t.Helper()
	failed := make(chan int)
	go func() { failed <- r.load(name, interval, d) }()
	f()
	if n := <-failed; n > 0 {
		r.t.Errorf("%d requests failed", n)
	}
}

// within waits for a state, for at most d.
func (r *rig) within(d time.Duration, name string, want variant.State) {
	r.t.Helper()
	began := time.Now()
	r.until("the state is "+want.String(), func() bool { return r.state(name) == want })
	if took := time.Since(began); took > d {
		r.t.Errorf("%v after %v", want, took)
	}
}

// An instance that something interferes with is moved once, and is Active again afterwards.
func TestInterferedInstanceIsMoved(t *testing.T) {
	var r *rig
	var moves atomic.Int32
	tryWith(t, func(o *Options) {
		o.Move = func(context.Context, cluster.InstanceID) (bool, error) {
			moves.Add(1)
			r.backend.disturb("")
			return true, nil
		}
	}, func(rig *rig) {
		r = rig
		r.backend.take(func(cluster.Config) float64 { return 1.5 })
		r.measured("fn", "plain", wholeCore)
		r.loaded("fn", 50*time.Millisecond, 90*time.Second, func() {
			time.Sleep(30 * time.Second)
			if s, n := r.state("fn"), moves.Load(); s != variant.Active || n != 0 {
				t.Errorf("a model that is slower than predicted: %v, %d moves", s, n)
			}
			r.backend.disturb("n1")
			r.within(3*time.Second, "fn", variant.Interfered)
			r.within(3*time.Second, "fn", variant.Active)
			time.Sleep(20 * time.Second)
		})
		if n := moves.Load(); n != 1 {
			t.Errorf("it was moved %d times", n)
		}
	})
}

// An instance that cannot be moved is replaced by one on another node, and no request fails.
func TestInterferedInstanceIsReplaced(t *testing.T) {
	for name, move := range map[string]Mover{"no mover": nil, "no other cores": func(context.Context, cluster.InstanceID) (bool, error) { return false, nil }} {
		t.Run(name, func(t *testing.T) {
			tryWith(t, func(o *Options) {
				o.Move = move
				b := o.Backend.(*fakeBackend)
				b.nodes = append(b.nodes, cluster.Node{Name: "n2", Total: b.nodes[0].Total})
			}, func(r *rig) {
				r.backend.take(func(cluster.Config) float64 { return 1 })
				r.measured("fn", "plain", wholeCore)
				r.loaded("fn", 50*time.Millisecond, 60*time.Second, func() {
					time.Sleep(30 * time.Second)
					from := r.only()
					r.backend.disturb(from.Node)
					r.until("another node has the instance", func() bool {
						living := r.backend.living()
						return len(living) == 1 && living[0].Node != from.Node && living[0].State == cluster.Ready
					})
					r.within(10*time.Second, "fn", variant.Active)
				})
			})
		})
	}
}

// Without another node it keeps serving where it is. After a minute its times are the usual
// ones.
func TestInterferedInstanceStays(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.take(func(cluster.Config) float64 { return 1 })
		r.measured("fn", "plain", wholeCore)
		r.loaded("fn", 50*time.Millisecond, 120*time.Second, func() {
			time.Sleep(30 * time.Second)
			from := r.only()
			r.backend.disturb("n1")
			r.within(3*time.Second, "fn", variant.Interfered)
			time.Sleep(50 * time.Second)
			if s := r.state("fn"); s != variant.Interfered || r.only().ID != from.ID {
				t.Errorf("%v on %s", s, r.only().ID)
			}
			r.within(15*time.Second, "fn", variant.Active)
		})
	})
}
