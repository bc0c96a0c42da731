package bundles

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/forkjoin"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/store"
)

// Plans and prepared parts go an hour after the last function or instance that uses them.
func TestUnusedPlansAreRemoved(t *testing.T) {
	r, f := registrarOf(t, withModels(t, "models: [{name: a, model: a.onnx}]\n", "mnist"))
	deployed := types.FunctionDeployment{Service: "f", Image: f.Deployment.Image, Annotations: &map[string]string{
		"com.openfaas.slo.latency": "1s", annotation.InferPartition: annotation.PartitionAuto, "com.openfaas.infer.max-batch": "1",
	}}
	in, err := annotation.Parse(deployed)
	if err != nil {
		t.Fatal(err)
	}
	f.Deployment, f.Inference = deployed, in
	models, err := r.uncut(f)
	if err != nil {
		t.Fatal(err)
	}
	w, err := r.cutter.want(f, models[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(r.cutter.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p := &planned{Cutter: r.cutter, f: f, model: models[0], wanted: w}
	var parts string
	begin := func() {
		t.Helper()
		p.write(t, servedMnist(w))
		left := filepath.Join(r.cutter.dir, ".plans-left")
		if err := errors.Join(os.MkdirAll(left, 0o755), os.Chtimes(left, time.Unix(0, 0), time.Unix(0, 0))); err != nil {
			t.Fatal(err)
		}
		if parts, err = r.Children.Prepare(t.Context(), filepath.Join(w.dir, "parts-2"+forkjoin.Suffix)); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	running := []cluster.Instance{{InstanceSpec: cluster.InstanceSpec{Artefact: cluster.Artefact{Name: "parts-2", Plan: "{}"}}}}
	after := func(what string, later time.Duration, functions []store.Function, running []cluster.Instance, plansStay, partsStay bool) {
		t.Helper()
		removed, err := r.tidyPlans(now.Add(later), functions, running)
		_, plans := os.Stat(w.dir)
		_, prepared := os.Stat(parts)
		if err != nil || (plans == nil) != plansStay || (prepared == nil) != partsStay {
			t.Errorf("%s: %v; removed %v; plans: %v, parts: %v", what, err, removed, plans, prepared)
		}
	}
	functions := []store.Function{{Deployment: types.FunctionDeployment{Service: "other", Image: "none:latest"}}, {Deployment: deployed}}
	begin()
	running[0].Artefact.Model = parts
	after("its function is there", 50*time.Hour, functions, nil, true, true)
	after("its function has just gone", 50*time.Hour+59*time.Minute, functions[:1], nil, true, true)
	after("an instance has loaded its parts", 60*time.Hour, functions[:1], running, false, true)
	after("an instance has just ended", 60*time.Hour+59*time.Minute, functions[:1], nil, false, true)
	after("nothing uses it", 61*time.Hour+time.Second, functions[:1], nil, false, false)
	if left := files(t, r.cutter.dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	begin()
	if got := p.found(t); len(got) != 2 {
		t.Errorf("made again, there are %+v", got)
	}
	after("it is deployed", 59*time.Minute, nil, nil, true, true)
	bundle := filepath.Join(string(r.bundles), "app", "v1")
	if err := os.Rename(filepath.Join(bundle, "bundle.yaml"), filepath.Join(bundle, "away")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(bundle, "bundle.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	if removed, err := r.tidyPlans(now.Add(50*time.Hour), functions, nil); err == nil || len(removed) > 0 {
		t.Errorf("the bundle cannot be read: %v, %v", removed, err)
	}
}
