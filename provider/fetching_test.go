package provider

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/model/source/fetch"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/store"
)

// gatedFetcher brings models when its gate lets it.
type gatedFetcher struct {
	gate chan error
	mu   sync.Mutex
	kept map[string]types.FunctionDeployment
}

func (g *gatedFetcher) Fetch(ctx context.Context, _ types.FunctionDeployment, _ annotation.Inference, _ *fetch.Progress) error {
	select {
	case err := <-g.gate:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gatedFetcher) Keep(d types.FunctionDeployment) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kept[d.Service] = d
	return nil
}

func (g *gatedFetcher) Drop(_, name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.kept, name)
}

func (g *gatedFetcher) Kept() (all []types.FunctionDeployment, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range g.kept {
		all = append(all, d)
	}
	return all, nil
}

func fromURI(d *types.FunctionDeployment) {
	d.Annotations = &map[string]string{annotation.SLOLatency: "50ms", annotation.InferModel: "https://models.example.com/mnist.onnx"}
}

// fetchingRig is a server whose deployments are answered at once if patience is 0.
func fetchingRig(t *testing.T, patience time.Duration) (*rig, *gatedFetcher) {
	t.Helper()
	g := &gatedFetcher{gate: make(chan error), kept: map[string]types.FunctionDeployment{}}
	r := newRig(t, func(o *Options) { o.Fetcher, o.Downloads = g, t.Context() })
	r.fetching.patience = patience
	return r, g
}

func (r *rig) shows(word string) func() bool {
	return func() bool { return strings.Contains(r.do("GET", "/system/function/mnist", "").Body.String(), word) }
}

// TestDeploymentWaitsForItsModel: within its patience a deployment is answered when its model is there, or refused.
func TestDeploymentWaitsForItsModel(t *testing.T) {
	r, g := fetchingRig(t, time.Hour)
	go func() { g.gate <- &annotation.Error{Key: annotation.InferModel, Value: "x", Why: "it is not there"} }()
	wantSentence(t, r.do("POST", "/system/functions", deployment(fromURI)), 400, "com.openfaas.infer.model", "not there")
	wantSentence(t, r.do("GET", "/system/function/mnist", ""), 404)
	if r.names() != 0 {
		t.Error("a refused function is there")
	}
	go func() {
		eventually(t, "progress", r.shows("being downloaded"))
		wantSentence(t, r.do("POST", "/function/mnist", "x"), 503, "being downloaded")
		if !strings.Contains(r.do("GET", "/system/functions", "").Body.String(), "being downloaded") {
			t.Error("the list does not show it")
		}
		g.gate <- nil
	}()
	r.deploy(t, fromURI)
	if w := r.do("POST", "/function/mnist", "x"); w.Code != 200 {
		t.Error(w.Code, w.Body)
	}
	if r.shows("being downloaded")() {
		t.Error("the progress stays")
	}
}

// TestDeploymentIsAnsweredBefore: a deployment that takes long is accepted, kept until its model is there, and its later
// failure is the function's problem.
func TestDeploymentIsAnsweredBefore(t *testing.T) {
	r, g := fetchingRig(t, 0)
	r.deploy(t, fromURI)
	if all, _ := g.Kept(); len(all) != 1 {
		t.Error("the accepted deployment is not kept")
	}
	g.gate <- nil
	eventually(t, "deployed", func() bool { return r.do("POST", "/function/mnist", "x").Code == 200 })
	eventually(t, "dropped", func() bool { all, _ := g.Kept(); return len(all) == 0 })

	r.deploy(t, fromURI)
	eventually(t, "progress of an update", r.shows("being downloaded"))
	g.gate <- errors.New("the server is gone")
	eventually(t, "problem of an update", r.shows("the previous deployment is served: the server is gone"))
	if w := r.do("POST", "/function/mnist", "x"); w.Code != 200 {
		t.Error(w.Code, w.Body)
	}

	if w := r.do("DELETE", "/system/functions", `{"functionName":"mnist"}`); w.Code != 202 {
		t.Fatal(w.Code, w.Body)
	}
	r.deploy(t, fromURI)
	g.gate <- errors.New("the server is gone")
	eventually(t, "problem of a new function", r.shows("the server is gone"))
	wantSentence(t, r.do("POST", "/function/mnist", "x"), 503, "the server is gone")
	r.deploy(t, nil)
	if w := r.do("POST", "/function/mnist", "x"); w.Code != 200 {
		t.Error(w.Code, w.Body)
	}
}

// TestDeploymentTakesThePlace: a later deployment or a deletion ends a download.
func TestDeploymentTakesThePlace(t *testing.T) {
	r, g := fetchingRig(t, 0)
	r.deploy(t, fromURI)
	r.deploy(t, nil)
	if all, _ := g.Kept(); len(all) != 0 || r.shows("being downloaded")() {
		t.Error("the earlier deployment still waits")
	}
	r.deploy(t, fromURI)
	if w := r.do("DELETE", "/system/functions", `{"functionName":"mnist"}`); w.Code != 202 {
		t.Fatal(w.Code, w.Body)
	}
	if all, _ := g.Kept(); len(all) != 0 || r.names() != 0 {
		t.Error("a deleted function still waits")
	}
	first := make(chan int)
	r.fetching.patience = time.Hour
	go func() { first <- r.do("POST", "/system/functions", deployment(fromURI)).Code }()
	eventually(t, "progress", r.shows("being downloaded"))
	r.deploy(t, nil)
	if code := <-first; code != http.StatusConflict {
		t.Error(code)
	}
}

// TestLaterDeploymentElsewhere: a deployment or a deletion at another replica ends a download, and is not undone by it.
func TestLaterDeploymentElsewhere(t *testing.T) {
	r, g := fetchingRig(t, 0)
	r.adopt(t, r.elsewhere(t, 7, nil))
	r.deploy(t, fromURI)
	r.adopt(t, r.elsewhere(t, 7, func(f *store.Function) { f.Replicas = 3 }))
	if !r.shows("being downloaded")() {
		t.Error("scaling has ended a download")
	}
	r.adopt(t, r.elsewhere(t, 8, nil))
	if all, _ := g.Kept(); len(all) != 0 || r.shows("being downloaded")() {
		t.Error("the earlier deployment still waits")
	}
	r.deploy(t, fromURI)
	if err := r.Forget(t.Context(), DefaultNamespace, "mnist"); err != nil {
		t.Fatal(err)
	}
	if all, _ := g.Kept(); len(all) != 0 || r.names() != 0 {
		t.Error("a function that was deleted elsewhere still waits")
	}
}

// TestDeploymentGoesOnAfterARestart: an accepted deployment outlives its provider.
func TestDeploymentGoesOnAfterARestart(t *testing.T) {
	r, g := fetchingRig(t, 0)
	var d types.FunctionDeployment
	d.Service, d.Namespace, d.Image = "mnist", DefaultNamespace, "any"
	fromURI(&d)
	g.kept["mnist"] = d
	if err := r.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "progress", r.shows("being downloaded"))
	g.gate <- nil
	eventually(t, "deployed", func() bool { return r.do("POST", "/function/mnist", "x").Code == 200 })
}
