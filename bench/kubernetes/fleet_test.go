package kubernetes

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"
)

// A small fleet gives every figure that a large one gives.
func TestSmallFleet(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	f := Default()
	f.Nodes, f.Functions, f.Pods, f.Rounds, f.Log = 20, 3, 40, 2, t.Output()
	f.Rate, f.Step, f.Serve = 40, 4*time.Second, 2*time.Second
	r, err := Run(ctx, f)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, result := range r.Results {
		got[result.Name] = result.Value
	}
	for _, name := range []string{"decision_ms", "pods_per_s.ours", "pods_per_s.bare", "pods_ratio", "memory_mib"} {
		if v, ok := got[name]; !ok || !(v > 0) || math.IsInf(v, 0) {
			t.Errorf("%s is %v, want a positive figure", name, v)
		}
	}
	if v, ok := got["writes_per_request"]; !ok || v != 0 {
		t.Errorf("writes_per_request is %v, want 0", v)
	}
	if got["step.instances"] < 2 || got["step.answered"] < 10 {
		t.Errorf("the load step had %v instances started and %v requests answered", got["step.instances"], got["step.answered"])
	}
	if err := r.Table(t.Output()); err != nil {
		t.Error(err)
	}
}

func TestFleetsThatMakeNoSense(t *testing.T) {
	for want, edit := range map[string]func(*Fleet){
		"--nodes": func(f *Fleet) { f.Nodes = 0 }, "--functions": func(f *Fleet) { f.Functions = 1 },
		"--pods 3": func(f *Fleet) { f.Pods = 3 }, "--rate": func(f *Fleet) { f.Rate = 0 },
	} {
		f := Default()
		edit(&f)
		if err := f.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
	if err := Default().Check(); err != nil {
		t.Error(err)
	}
}

func TestWritesAreCounted(t *testing.T) {
	sum, err := sumWrites([]byte(`# HELP apiserver_request_total x
apiserver_request_total{code="201",resource="pods",verb="POST"} 12
apiserver_request_total{code="200",resource="pods",verb="LIST"} 100
apiserver_request_total{code="200",resource="pods",verb="APPLY"} 3
apiserver_request_total{code="409",resource="pods",verb="DELETE"} 1e+01
apiserver_request_terminations_total{verb="POST"} 9
`))
	if err != nil || sum != 25 {
		t.Errorf("%v, %v; want 25", sum, err)
	}
	if _, err := sumWrites([]byte(`apiserver_request_total{verb="POST"} many`)); err == nil {
		t.Error("a count that is none is counted")
	}
}
