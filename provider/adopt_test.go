package provider

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/store"
)

// elsewhere is a function as another replica would keep it.
func (r *rig) elsewhere(t *testing.T, revision uint64, edit func(f *store.Function)) store.Function {
	t.Helper()
	f := store.Function{Revision: revision, CreatedAt: now, Deployment: types.FunctionDeployment{Service: "mnist", Namespace: DefaultNamespace, Image: "mnist:2",
		Annotations: &map[string]string{"com.openfaas.slo.latency": "50ms"}}}
	if edit != nil {
		edit(&f)
	}
	if err := r.store.PutFunction(f); err != nil {
		t.Fatal(err)
	}
	return f
}

func (r *rig) adopt(t *testing.T, f store.Function) {
	t.Helper()
	if err := r.Adopt(context.Background(), f); err != nil {
		t.Fatal(err)
	}
}

func TestAdoptWhatAnotherReplicaDeployed(t *testing.T) {
	r := newRig(t, nil)
	first := r.elsewhere(t, 7, nil)
	r.adopt(t, first)
	if w := r.do("POST", "/function/mnist", "hello"); w.Code != 200 || w.Body.String() != "hello" {
		t.Errorf("invoked: %d %s", w.Code, w.Body)
	}
	deployed := r.controller.deployed["mnist.openfaas-fn"]
	r.adopt(t, first) // An echo.
	if r.controller.deployed["mnist.openfaas-fn"] != deployed {
		t.Error("the echo of a deployment was deployed")
	}
	r.adopt(t, r.elsewhere(t, 8, func(f *store.Function) { f.Deployment.Image = "mnist:3" }))
	r.adopt(t, first) // Old news.
	if got := r.controller.deployed["mnist.openfaas-fn"].Deployment.Image; got != "mnist:3" {
		t.Errorf("%s runs", got)
	}
	// But where the store really went back, so does the server.
	r.adopt(t, r.elsewhere(t, 6, nil))
	if got := r.controller.deployed["mnist.openfaas-fn"].Revision; got != 6 {
		t.Errorf("revision %d runs", got)
	}
}

func TestAdoptReplicas(t *testing.T) {
	r := newRig(t, nil)
	r.adopt(t, r.elsewhere(t, 7, nil))
	r.adopt(t, r.elsewhere(t, 7, func(f *store.Function) { f.Replicas = 3 }))
	if got := r.controller.scaled["mnist.openfaas-fn"]; got != 3 {
		t.Errorf("scaled to %d", got)
	}
}

// What cannot be adopted leaves what ran, and says why where nothing did.
func TestAdoptNonsense(t *testing.T) {
	r := newRig(t, nil)
	r.adopt(t, r.elsewhere(t, 7, nil))
	nonsense := func(f *store.Function) {
		f.Deployment.Annotations = &map[string]string{"com.openfaas.slo.latency": "fast"}
	}
	if err := r.Adopt(context.Background(), r.elsewhere(t, 8, nonsense)); err == nil || !strings.Contains(err.Error(), "com.openfaas.slo.latency") {
		t.Errorf("error %v", err)
	}
	if w := r.do("POST", "/function/mnist", "x"); w.Code != 200 {
		t.Errorf("what ran before does not: %d %s", w.Code, w.Body)
	}
	r.controller.refuse = errors.New("there is no such image")
	if err := r.Adopt(context.Background(), r.elsewhere(t, 9, func(f *store.Function) { f.Deployment.Service = "new" })); err == nil {
		t.Error("adopted")
	}
	wantSentence(t, r.do("POST", "/function/new", "x"), 503, "there is no such image")
	// As soon as it can be, it is, though nothing about it has changed.
	r.controller.refuse = nil
	r.adopt(t, r.elsewhere(t, 9, func(f *store.Function) { f.Deployment.Service = "new" }))
	if w := r.do("POST", "/function/new", "x"); w.Code != 200 {
		t.Errorf("mended: %d %s", w.Code, w.Body)
	}
}

func TestForget(t *testing.T) {
	r := newRig(t, nil)
	r.adopt(t, r.elsewhere(t, 7, nil))
	for range 2 { // The second time there is nothing to do.
		if err := r.Forget(context.Background(), DefaultNamespace, "mnist"); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.controller.deployed) != 0 {
		t.Error("it still runs")
	}
	wantSentence(t, r.do("POST", "/function/mnist", "x"), 404, "mnist")
}
