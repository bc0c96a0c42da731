package control

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/provider"
)

// fleetBackend has room for anything, and its instances are ready at once.
type fleetBackend struct {
	*fakeBackend
	started atomic.Int64
}

func (b *fleetBackend) Start(_ context.Context, spec cluster.InstanceSpec) (cluster.Instance, error) {
	b.started.Add(1)
	in := cluster.Instance{InstanceSpec: spec, State: cluster.Ready, Network: "fake", Address: string(spec.ID), StartedAt: time.Now(), ReadyAt: time.Now()}
	b.serving(in)
	b.News <- in
	return in, nil
}

func (b *fleetBackend) Stop(context.Context, cluster.InstanceID) error { return nil }

// newFleet returns a controller of functions that keep this many instances together on the nodes; the
// first function, "step", has one.
func newFleet(b testing.TB, functions, instances, nodes int, edits ...func(*Options)) (*rig, *fleetBackend) {
	r := newRig(b)
	backend := &fleetBackend{fakeBackend: r.backend}
	r.options.Backend, r.options.Cold = backend, coldstart.NewFixed(time.Hour)
	for _, edit := range edits {
		edit(&r.options)
	}
	backend.Machines = nil
	for i := range nodes {
		whole := cluster.Resources{CPU: 8000, Memory: 32 << 30}
		backend.Machines = append(backend.Machines, cluster.Node{Name: fmt.Sprintf("kwok-%04d", i), Total: whole, Free: whole})
	}
	r.open()
	name := func(i int) string {
		if i == 0 {
			return "step"
		}
		return fmt.Sprint("filled-", i)
	}
	for i := range functions {
		r.deploy(name(i), "slow", func(f *provider.Function) { f.Inference.SLO = 5 * time.Second })
	}
	for i := range functions {
		r.until("measured", func() bool { return r.describe(name(i)).Measured })
	}
	each := uint64(instances / (functions - 1))
	for i := range functions {
		n := each
		if i == 0 {
			n = 1
		}
		if err := r.Scale(full(name(i)), n); err != nil {
			b.Fatal(err)
		}
	}
	want := int64(each)*int64(functions-1) + 1
	for backend.started.Load() < want {
		r.scale(time.Now())
		r.until("what is begun is there", func() bool {
			for len(backend.News) > 0 {
				r.keeper.Observe(<-backend.News)
			}
			return r.starting() == 0
		})
	}
	if n := backend.started.Load(); n != want {
		b.Fatalf("%d instances were started, want %d", n, want)
	}
	return r, backend
}

// starting counts the instances that are not ready yet.
func (r *rig) starting() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, in := range r.keeper.Instances() {
		if in.State == cluster.Starting {
			n++
		}
	}
	return n
}

// One look at 10,000 instances without load; the provider makes ten a second.
func BenchmarkFleetLook(b *testing.B) {
	for _, functions := range []int{40, 10_000} {
		b.Run(fmt.Sprint(functions), func(b *testing.B) {
			r, _ := newFleet(b, functions, 10_000, 2000)
			b.ReportAllocs()
			for b.Loop() {
				r.scale(time.Now())
			}
			b.StopTimer()
			if err := r.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// countedCold counts the questions to a cold-start policy.
type countedCold struct {
	coldstart.Policy
	asked int
}

func (c *countedCold) Windows(now time.Time, function string) coldstart.Windows {
	c.asked++
	return c.Policy.Windows(now, function)
}

// What a look of the controller does grows no faster than n log n with the functions: its
// allocations, and its questions to the policy, the platform and the queue.
func TestLookGrowth(t *testing.T) {
	type work struct{ allocations, bytes, windows, questions float64 }
	of := func(n int) (w work) {
		asked, cold := 0, &countedCold{Policy: coldstart.NewFixed(time.Hour)}
		r, _ := newFleet(t, n, n, 100, func(o *Options) {
			o.Cold = cold
			o.Eligible = func(*provider.Function) ([]string, string) { asked++; return nil, "" }
			o.Backlog = func(string) (int, time.Time) { asked++; return 0, time.Time{} }
		})
		began := time.Now()
		for i := range 2 { // The second records the metrics of the new instances if the first comes too early for that.
			r.scale(began.Add(time.Duration(i) * time.Second))
		}
		var before, after runtime.MemStats
		asked, cold.asked = 0, 0
		runtime.ReadMemStats(&before)
		for i := range 4 { // Each updates the metrics, and every second one decides about nodes.
			r.scale(began.Add(time.Duration(i+2) * time.Second))
		}
		runtime.ReadMemStats(&after)
		w = work{float64(after.Mallocs - before.Mallocs), float64(after.TotalAlloc - before.TotalAlloc), float64(cold.asked), float64(asked)}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		return w
	}
	few, many := of(100), of(400)
	// n log n is 4 · log 400 / log 100 = 5.2 times as much, n² 16 times.
	nLogN := 4 * math.Log(400) / math.Log(100)
	for what, count := range map[string]func(w work) float64{
		"allocations": func(w work) float64 { return w.allocations }, "bytes": func(w work) float64 { return w.bytes },
		"questions to the policy": func(w work) float64 { return w.windows }, "questions to the platform": func(w work) float64 { return w.questions },
	} {
		if count(many) > nLogN*count(few) {
			t.Errorf("%s: %.0f for 100 functions, %.0f for 400", what, count(few), count(many))
		}
	}
}

// Nodes are not compared with each other, also not if there is a list of those that are allowed.
func TestNodesAreAskedOnce(t *testing.T) {
	nodes, names := make([]cluster.Node, 500), []string{}
	for i := range nodes {
		nodes[i].Name = fmt.Sprintf("n-%04d", i)
		names = append(names, nodes[i].Name)
	}
	for what, allowed := range map[string][]string{"all": nil, "each": names} {
		asked := 0
		left := without(allowed, nodes, func(name string) bool {
			asked++
			return name == names[3]
		})
		if asked != len(nodes) || len(left) != len(nodes)-1 || slices.Contains(left, names[3]) {
			t.Errorf("%s allowed: %d of %d nodes are left after %d questions", what, len(left), len(nodes), asked)
		}
		if left := without(allowed, nodes, func(string) bool { return true }); len(left) != len(allowed) {
			t.Errorf("%s allowed, and all out: %d are left", what, len(left))
		}
	}
}
