package control

import (
	"context"
	"fmt"
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
	b.events <- in
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
	backend.nodes = nil
	for i := range nodes {
		whole := cluster.Resources{CPU: 8000, Memory: 32 << 30}
		backend.nodes = append(backend.nodes, cluster.Node{Name: fmt.Sprintf("kwok-%04d", i), Total: whole, Free: whole})
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
			for len(backend.events) > 0 {
				r.keeper.Observe(<-backend.events)
			}
			return r.starting() == 0
		})
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
