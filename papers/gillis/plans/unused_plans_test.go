package plans

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/children"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/store"
)

// Plans and prepared parts go an hour after the last function or instance that uses them.
func TestUnusedPlansAreRemoved(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(root, "app"), 0o755), os.Rename(mnistBundle(t), filepath.Join(root, "app", "v1"))); err != nil {
		t.Fatal(err)
	}
	c := New(bundles.CutterOptions{State: t.TempDir(), Models: children.New(children.Config{Prepared: t.TempDir()})})
	modelsOf := func(f *provider.Function) ([]control.Model, error) {
		b, err := bundles.Dir(root).Open(f.Deployment.Image)
		if err != nil {
			return nil, err
		}
		return bundles.VariantsIn(bundles.Place{Hash: c.models.Hash}).Models(b, f)
	}
	f := &provider.Function{}
	f.Deployment.Image = "app:v1"
	deployed := types.FunctionDeployment{Service: "f", Image: f.Deployment.Image, Annotations: &map[string]string{
		"com.openfaas.slo.latency": "1s", annotation.InferPartition: annotation.PartitionAuto, "com.openfaas.infer.max-batch": "1",
	}}
	in, err := annotation.Parse(deployed)
	if err != nil {
		t.Fatal(err)
	}
	f.Deployment, f.Inference = deployed, in
	models, err := modelsOf(f)
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.want(f, models[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p := &planned{Cutter: c, f: f, model: models[0], wanted: w}
	var parts string
	begin := func() {
		t.Helper()
		p.write(t, servedMnist(w))
		left := filepath.Join(c.dir, ".plans-left")
		if err := errors.Join(os.MkdirAll(left, 0o755), os.Chtimes(left, time.Unix(0, 0), time.Unix(0, 0))); err != nil {
			t.Fatal(err)
		}
		if parts, err = c.models.Prepare(t.Context(), filepath.Join(w.dir, "parts-2"+bundle.CuttingSuffix)); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	running := []cluster.Instance{{InstanceSpec: cluster.InstanceSpec{Artefact: cluster.Artefact{Name: "parts-2", Plan: "{}"}}}}
	after := func(what string, later time.Duration, functions []store.Function, running []cluster.Instance, plansStay, partsStay bool) {
		t.Helper()
		removed, err := c.Tidy(now.Add(later), functions, running, modelsOf)
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
	if left, err := os.ReadDir(c.dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	begin()
	if got := p.found(t); len(got) != 2 {
		t.Errorf("made again, there are %+v", got)
	}
	after("it is deployed", 59*time.Minute, nil, nil, true, true)
	dir := filepath.Join(root, "app", "v1")
	if err := os.Rename(filepath.Join(dir, "bundle.yaml"), filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "bundle.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	if removed, err := c.Tidy(now.Add(50*time.Hour), functions, nil, modelsOf); err == nil || len(removed) > 0 {
		t.Errorf("the bundle cannot be read: %v, %v", removed, err)
	}
}
