package plans

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/papers/gillis/partition"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/children"
	"github.com/faas-infer/faas-infer/provider/control"
)

// mnistBundle writes a bundle with mnist in a.onnx.
func mnistBundle(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	m, err := zoo.Make("mnist", 1)
	if err == nil {
		err = m.WriteFile(filepath.Join(dir, "a.onnx"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "bundle.yaml"), []byte("models: [{name: a, model: a.onnx}]\n"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// planned is a model with a plan for two members, as it is written.
type planned struct {
	*Cutter
	f      *provider.Function
	model  control.Model
	wanted wanted
}

func newPlanned(t *testing.T) *planned {
	t.Helper()
	dir := mnistBundle(t)
	p := &planned{Cutter: &Cutter{dir: t.TempDir(), models: &children.Models{}, loading: 1}, f: &provider.Function{}}
	p.f.Inference.Partition, p.f.Inference.SLO, p.f.Inference.MaxBatch = annotation.PartitionAuto, time.Second, 1
	p.model = control.Model{Name: cluster.Whole, Of: "app", File: filepath.Join(dir, "a.onnx")}
	var err error
	if p.wanted, err = p.want(p.f, p.model); err != nil {
		t.Fatal(err)
	}
	p.write(t, servedMnist(p.wanted))
	return p
}

// servedMnist is a plan for mnist on two members.
func servedMnist(w wanted) *partition.Served {
	return &partition.Served{
		Name: "parts-2", Source: w.File, Plan: &cut.Plan{Model: w.content, Members: 2, Rounds: []cut.Round{{End: 2, Cut: "2x1", On: []int{0, 1}}, {First: 2, End: 5, Cut: "whole", On: []int{0}}}},
		Profile: &profiler.Profile{Parts: 2, Memory: 1 << 30, Measurements: []profiler.Measurement{{Batch: 1, Threads: 2, Median: 1000, P95: 1000, CPU: 2000, Predicted: true}}},
	}
}

func (p *planned) write(t *testing.T, all ...*partition.Served) {
	t.Helper()
	if err := os.RemoveAll(p.wanted.dir); err != nil {
		t.Fatal(err)
	}
	if err := Write(p.wanted.dir, all); err != nil {
		t.Fatal(err)
	}
}

// found lists what the function may load.
func (p *planned) found(t *testing.T) []control.Model {
	t.Helper()
	all, err := p.WithPlans(t.Context(), p.f, []control.Model{p.model})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A plan is read once, and shared by functions that say other things of the same model.
func TestPlansOfFunctions(t *testing.T) {
	p := newPlanned(t)
	first := p.found(t)
	if len(first) != 2 || first[1].Name != "parts-2" || first[1].Images != "" || first[1].Profile.Memory != 1<<30 {
		t.Fatalf("%+v", first)
	}
	p.model.Images, p.model.Accuracy = "rgb", 70
	second := p.found(t)
	if got := second[1]; got.Images != "rgb" || got.Accuracy != 70 || got.Profile != first[1].Profile {
		t.Errorf("%+v", got)
	}
	p.model.Name = "a"
	if got := p.found(t)[1]; got.Name != "a-parts-2" || got.From != "a" {
		t.Errorf("%+v", got)
	}
	if err := os.RemoveAll(p.wanted.dir); err != nil {
		t.Fatal(err)
	}
	if got := p.found(t); len(got) != 1 {
		t.Errorf("the plans are gone, and there are %+v", got)
	}
}

// A plan that is damaged, or of another model, counts as none and is made again.
func TestDamagedPlans(t *testing.T) {
	p := newPlanned(t)
	file := filepath.Join(p.wanted.dir, "parts-2"+bundle.CuttingSuffix)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"empty": "", "half": string(text[:len(text)/2]), "null": "null", "nothing": "{}",
		"no members": strings.ReplaceAll(string(text), `"members": 2`, `"members": 0`), "no times": strings.ReplaceAll(string(text), `"batch": 1`, `"batch": 0`),
		"another model": strings.ReplaceAll(string(text), p.wanted.content, "0123"), "other times": strings.ReplaceAll(string(text), `"parts": 2`, `"parts": 3`),
	} {
		if content == string(text) {
			t.Fatalf("%s: %s", name, text)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := p.found(t); len(got) != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := p.found(t); len(got) != 2 {
		t.Errorf("once it is whole: %+v", got)
	}
}

// A cutter for pods says in the log what it does not use.
func TestACutterLogs(t *testing.T) {
	p := newPlanned(t)
	var log bytes.Buffer
	p.Cutter = New(bundles.CutterOptions{State: t.TempDir(), Models: &children.Models{}, Pods: true, Logger: zerolog.New(&log)})
	var err error
	if p.wanted, err = p.want(p.f, p.model); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(p.wanted.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(p.wanted.dir, "parts-2"+bundle.CuttingSuffix)
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := p.found(t); len(got) != 1 || !strings.Contains(log.String(), file) {
		t.Errorf("%+v; the log has %q", got, log.String())
	}
}

// A model that is too large for an instance is refused if no way to cut it is known to help.
func TestALargeModelWithoutPlans(t *testing.T) {
	p := newPlanned(t)
	p.f.Inference.Limits.Memory = 1 << 10
	p.f.Deployment.Limits = &types.FunctionResources{Memory: "1Ki"}
	var err error
	if p.wanted, err = p.want(p.f, p.model); err != nil {
		t.Fatal(err)
	}
	p.write(t)
	_, err = p.WithPlans(t.Context(), p.f, []control.Model{p.model})
	if err == nil || !strings.Contains(err.Error(), `limits.memory is "1Ki": the model has 12 MiB of weights, and cannot be cut; raise it`) {
		t.Errorf("%v", err)
	}
}

// Nothing is planned for instances that could hold no part.
func TestNoSuggestionsForTinyInstances(t *testing.T) {
	p := newPlanned(t)
	p.f.Inference.Partition, p.f.Inference.Limits.Memory = "", 1<<20
	p.models.Place = func(int, bool) error {
		t.Error("it is planned")
		return nil
	}
	if got := p.Suggestions(t.Context(), p.f, []control.Model{p.model}); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// Close ends the planning that a suggestion goes on with, and waits for its end.
func TestCloseEndsSuggestions(t *testing.T) {
	c := &Cutter{}
	began, ended := make(chan struct{}), false
	c.Begin(func(ctx context.Context) {
		close(began)
		<-ctx.Done()
		ended = true
	})
	<-began
	if err := c.Close(); err != nil || !ended {
		t.Errorf("%v, ended %t", err, ended)
	}
	if c.Begin(func(context.Context) {}) {
		t.Error("a closed cutter began")
	}
}
