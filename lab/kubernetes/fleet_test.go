package kubernetes

import (
	"context"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
)

// A small fleet gives the same figures as a large one.
func TestSmallFleet(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	f := Default()
	f.Nodes, f.Functions, f.Pods, f.Replicas, f.Rounds, f.Log = 20, 4, 40, 2, 2, t.Output()
	f.Rate, f.Step, f.Serve = 40, 4*time.Second, 2*time.Second
	r, got := figures(ctx, t, f)
	if got["writes_per_request"] != 0 || got["step.answered"] < 10 {
		t.Log("once more: where the machine stood still, answers were late, and the provider ordered instances for it")
		r, got = figures(ctx, t, f)
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

// figures returns the figures of a run by name.
func figures(ctx context.Context, t *testing.T, f Fleet) (r *report.Report, got map[string]float64) {
	t.Helper()
	r, err := Run(ctx, f)
	if err != nil {
		t.Fatal(err)
	}
	got = map[string]float64{}
	for _, result := range r.Results {
		got[result.Name] = result.Value
	}
	return r, got
}

func TestFleetsThatMakeNoSense(t *testing.T) {
	for want, edit := range map[string]func(*Fleet){
		"--nodes": func(f *Fleet) { f.Nodes = 0 }, "--functions": func(f *Fleet) { f.Functions = 1 },
		"--pods 3": func(f *Fleet) { f.Pods = 3 }, "--rate": func(f *Fleet) { f.Rate = 0 },
		"--replicas": func(f *Fleet) { f.Replicas = 0 },
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

// The provider's writes are counted by kind.
func TestWritesHaveKinds(t *testing.T) {
	w := newWrites(nil)
	for _, of := range [][2]string{
		{"POST", "/api/v1/namespaces/openfaas-fn/pods"}, {"PATCH", "/api/v1/namespaces/openfaas-fn/pods/a-1/resize"},
		{"PATCH", "/apis/faas-infer.dev/v1alpha1/namespaces/openfaas-fn/functions/a/status"},
	} {
		w.add(httptest.NewRequest(of[0], of[1], nil))
	}
	before := w.now()
	w.add(httptest.NewRequest("DELETE", "/api/v1/namespaces/openfaas-fn/pods/a-1", nil))
	w.add(httptest.NewRequest("POST", "/apis/x", nil))
	if n, which := w.ours(nil); n != 5 || which != "1 × DELETE pods, 1 × PATCH functions/status, 1 × PATCH pods/resize, 1 × POST /apis/x, 1 × POST pods" {
		t.Errorf("%d: %s", n, which)
	}
	if n, which := w.ours(before); n != 2 || which != "1 × DELETE pods, 1 × POST /apis/x" {
		t.Errorf("since then %d: %s", n, which)
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
