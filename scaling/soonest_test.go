package scaling

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// INFaaS, Algorithm 1: a request that finds no instance starts the variant with the least time
// of loading and inference, of those that may answer it.
func TestColdRequestStartsTheSoonest(t *testing.T) {
	candidate := func(name string, loading, exec time.Duration, cpu int) capacity.Candidate {
		return capacity.Candidate{Artefact: name, Loading: loading, Exec: exec, Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: cpu, Memory: 1 << 20}}}
	}
	cheap, soon, never := candidate("cheap", 3*time.Second, 20*ms, 500), candidate("soon", 2*time.Second, 100*ms, 2000), candidate("never", time.Second, time.Second, 100)
	nodes := []cluster.Node{{Name: "n", Total: cluster.Resources{CPU: 8000, Memory: 1 << 30}, Free: cluster.Resources{CPU: 8000, Memory: 1 << 30}}}
	for name, c := range map[string]struct {
		edit func(f *Function)
		want string
	}{
		"the sum counts":                     {func(*Function) {}, "soon"},
		"an unknown loading time":            {func(f *Function) { f.Configs[1].Loading = 0 }, "cheap"},
		"a request that only one may answer": {func(f *Function) { f.Classes = []Class{{Artefacts: []string{"cheap"}, Waiting: 1}} }, "cheap"},
		"it prefers accuracy":                {func(f *Function) { f.Accurate = true; f.Configs[0].Accuracy, f.Configs[1].Accuracy = 80, 70 }, "cheap"},
		"nobody waits":                       {func(f *Function) { f.Waiting, f.Min = 0, 1 }, "cheap"},
	} {
		f := Function{Name: "f", Revision: 1, ScaleToZero: true, SLO: 200 * ms, Queue: capacity.LateBound, Waiting: 1, Configs: []capacity.Candidate{cheap, soon, never}}
		c.edit(&f)
		plan := New(DefaultSettings()).Scale(epoch, []Function{f}, nodes)
		if len(plan.Start) == 0 || plan.Start[0].Artefact != c.want {
			t.Errorf("%s: it starts %+v, want %s", name, plan.Start, c.want)
		}
	}
}
