package control

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
)

// A function at rest is examined about once a second, and at once when it gets a request, a number of
// instances or a deployment, or when an instance of it exits.
func TestFunctionsAtRest(t *testing.T) {
	const functions = 20
	asked := map[string]int{}
	r, backend := newFleet(t, functions, functions, 20, func(o *Options) {
		o.Eligible = func(f *provider.Function) ([]string, string) { asked[f.Deployment.Service]++; return nil, "" }
	})
	r.few = 0
	now := time.Now()
	look := func() {
		now = now.Add(r.options.Tick)
		clear(asked)
		r.scale(now)
	}
	sum := map[string]int{}
	for i := range 30 {
		if look(); i < 10 {
			continue
		}
		for name, n := range asked {
			sum[name] += n
		}
	}
	for name := range r.functions {
		if n := sum[r.functions[name].Deployment.Service]; n < 2 || n > 5 {
			t.Errorf("%s was examined %d times in two seconds of rest", name, n)
		}
	}
	if rests := r.functions[full("filled-1")].rest.until; rests.IsZero() {
		t.Fatal("filled-1 does not rest")
	}
	examined := func(what, name string) {
		t.Helper()
		r.functions[full(name)].rest.until = now.Add(time.Hour) // Nothing else makes it due.
		if look(); asked[name] != 1 {
			t.Errorf("%s: %s was examined %d times", what, name, asked[name])
		}
	}
	if err := r.Scale(full("filled-2"), 2); err != nil {
		t.Fatal(err)
	}
	before := backend.started.Load()
	examined("another number of instances", "filled-2")
	r.until("the second one is started", func() bool { return backend.started.Load() == before+1 })
	if _, err := r.invoke("filled-3", "x"); err != nil {
		t.Fatal(err)
	}
	examined("a request", "filled-3")
	in := r.functions[full("filled-4")].Sorted()[0].Instance
	in.State, in.Reason = cluster.Exited, "it was killed"
	r.keeper.Observe(in)
	examined("an exit", "filled-4")
	r.keeper.Lost(r.functions[full("filled-5")].Sorted()[0].ID, errors.New("it broke off"))
	examined("a lost instance", "filled-5")
	r.keeper.Suspect(r.functions[full("filled-6")].Sorted()[0].ID, true)
	examined("a suspect instance", "filled-6")
	was := r.functions[full("filled-7")].Function
	r.deploy("filled-7", "slow", func(f *provider.Function) { f.Inference.SLO = 6 * time.Second })
	r.until("the new revision is served", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.functions[full("filled-7")].Function != was
	})
	examined("a deployment", "filled-7")
	if err := r.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}
