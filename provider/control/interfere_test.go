package control

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
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

// corrected returns the corrected time of one request on a core.
func (r *rig) corrected(name string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.functions[full(name)].artefacts[0].table(r.functions[full(name)].artefacts[0].lead, 1, profiler.Share{CPU: 1000})[0]
}

// An instance that something interferes with is moved once, and is Active again afterwards.
// The times of its model are not corrected by what the move has ended.
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
			before := r.corrected("fn")
			r.backend.disturb("n1")
			r.within(3*time.Second, "fn", variant.Interfered)
			r.within(3*time.Second, "fn", variant.Active)
			for range 20 {
				time.Sleep(time.Second)
				if after := r.corrected("fn"); after > before {
					t.Errorf("%v became %v", before, after)
					break
				}
			}
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
				b.Machines = append(b.Machines, cluster.Node{Name: "n2", Total: b.Machines[0].Total})
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
	tryWith(t, func(o *Options) {
		o.Move = func(context.Context, cluster.InstanceID) (bool, error) { return false, nil }
	}, func(r *rig) {
		r.backend.take(func(cluster.Config) float64 { return 1 })
		r.measured("fn", "plain", wholeCore)
		r.loaded("fn", 50*time.Millisecond, 120*time.Second, func() {
			time.Sleep(30 * time.Second)
			from := r.only()
			r.backend.disturb("n1")
			before := r.corrected("fn")
			r.within(3*time.Second, "fn", variant.Interfered)
			time.Sleep(50 * time.Second)
			if after := r.corrected("fn"); after < 5*before/2 {
				t.Errorf("three times as slow, %v became %v", before, after)
			}
			if s := r.state("fn"); s != variant.Interfered || r.only().ID != from.ID {
				t.Errorf("%v on %s", s, r.only().ID)
			}
			r.within(15*time.Second, "fn", variant.Active)
		})
	})
}

// The variants of a function are shown with their states, and counted in the metrics.
func TestVariantsAreShown(t *testing.T) {
	try(t, func(r *rig) {
		if _, ok := r.Variants(full("fn")); ok {
			t.Error("an unknown function has variants")
		}
		r.backend.take(func(cluster.Config) float64 { return 1 })
		r.deploy("fn", twoVariants, wholeCore, accurate(75))
		if all, ok := r.Variants(full("fn")); !ok || len(all) != 0 {
			t.Errorf("before the times are known: %+v, %v", all, ok)
		}
		r.until("measured", func() bool { return r.describe("fn").Measured })
		r.loaded("fn", 50*time.Millisecond, 40*time.Second, func() {
			time.Sleep(30 * time.Second)
			for _, want := range []string{"active", "interfered"} {
				r.until(want, func() bool { return r.state("fn").String() == want })
				time.Sleep(time.Second)
				all, _ := r.Variants(full("fn"))
				if len(all) != 2 {
					t.Fatalf("%+v", all)
				}
				p, s := all[0], all[1]
				if p.Name != "precise" || p.Accuracy != 80 || p.State != want || p.Instances != 1 || len(p.Nodes) != 1 || p.Nodes[0] != (provider.VariantNode{Node: "n1", State: want, Instances: 1}) {
					t.Errorf("%+v", p)
				}
				if p.LatencyMS < 3 || p.RPS < 50 || p.LoadMS != 100 || p.Price.CPU != 1000 || p.Holds != p.Price || p.Config == "" {
					t.Errorf("%+v", p)
				}
				if s.Name != "slim" || s.State != "inactive" || s.Instances != 0 || s.Nodes == nil || s.RPS < 50 || s.LoadMS != 0 || s.Holds.CPU != 0 || s.Price.CPU != 1000 {
					t.Errorf("%+v", s)
				}
				shown := fmt.Sprintf("# HELP faas_infer_variant_instances Ready instances, by variant of the model and its state: active, overloaded, interfered.\n# TYPE faas_infer_variant_instances gauge\nfaas_infer_variant_instances{function=%q,state=%q,variant=\"precise\"} 1\n", full("fn"), want)
				if err := testutil.GatherAndCompare(r.registry, strings.NewReader(shown), "faas_infer_variant_instances"); err != nil {
					t.Error(err)
				}
				r.backend.disturb("n1")
			}
		})
	})
}

// A set is shown on each of its nodes, once.
func TestSetsAreShownOnTheirNodes(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("fn", "plain", wholeCore)
		r.answered("fn", "plain")
		r.mu.Lock()
		for _, in := range r.functions[full("fn")].Instances {
			in.Nodes = []string{"n2", "n1", "n2"}
		}
		r.mu.Unlock()
		all, _ := r.Variants(full("fn"))
		if len(all) != 1 || all[0].Instances != 1 || len(all[0].Nodes) != 2 || all[0].Nodes[0].Node != "n1" || all[0].Nodes[1].Instances != 1 {
			t.Errorf("%+v", all)
		}
	})
}

// An instance that gets more than its peak is Overloaded, also while it is disturbed.
func TestOverloadedIsNotInterfered(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.take(func(cluster.Config) float64 { return 1 })
		r.measured("fn", "plain", wholeCore, func(f *provider.Function) { f.Inference.MaxBatch = 1 })
		r.loaded("fn", 10*time.Millisecond, 20*time.Second, func() { time.Sleep(20 * time.Second) })
		go r.load("fn", time.Millisecond, 10*time.Second)
		r.within(3*time.Second, "fn", variant.Overloaded)
		r.backend.disturb("n1")
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			if s := r.state("fn"); s != variant.Overloaded {
				t.Fatal(s)
			}
		}
		time.Sleep(10 * time.Second)
	})
}
