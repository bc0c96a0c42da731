package provider

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// elsewhere returns a function's record as another replica would store it.
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

// After a failed adoption the revision before goes on running. If none ran, invocations
// answer with the reason.
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

// slow is a controller whose deployments wait for a signal.
type slow struct {
	*fakeController
	begun, goOn chan struct{}
}

func (c *slow) Deploy(ctx context.Context, f *Function) (Dispatcher, error) {
	close(c.begun)
	<-c.goOn
	return c.fakeController.Deploy(ctx, f)
}

// A request for a function that is being adopted waits for the adoption.
func TestRequestsWaitForWhatArrives(t *testing.T) {
	var c *slow
	r := newRig(t, func(o *Options) {
		c = &slow{o.Controller.(*fakeController), make(chan struct{}), make(chan struct{})}
		o.Controller = c
	})
	adopted, answered := make(chan error, 1), make(chan int, 1)
	f := r.elsewhere(t, 7, nil)
	go func() { adopted <- r.Adopt(context.Background(), f) }()
	<-c.begun
	go func() { answered <- r.do("POST", "/function/mnist", "x").Code }()
	wantSentence(t, r.do("POST", "/function/nobody", "x"), 404, "nobody")
	close(c.goOn)
	if err, code := <-adopted, <-answered; err != nil || code != 200 {
		t.Errorf("adopted: %v, answered %d", err, code)
	}
}

// System routes and the queue find a function that another replica has deployed and that
// this server has not heard of yet.
func TestRoutesKnowWhatTheStoreHas(t *testing.T) {
	for name, ask := range map[string]func(r *rig) int{
		"describe": func(r *rig) int { return r.do("GET", "/system/function/mnist", "").Code },
		"scale":    func(r *rig) int { return r.do("POST", "/system/scale-function/mnist", `{"replicas":2}`).Code - 2 },
		"update":   func(r *rig) int { return r.do("PUT", "/system/functions", deployment(nil)).Code - 2 },
		"remove":   func(r *rig) int { return r.do("DELETE", "/system/functions", `{"functionName":"mnist"}`).Code - 2 },
		"queue": func(r *rig) int {
			resp, err := r.Invoke(context.Background(), "mnist", &frame.Request{Method: "POST", Path: "/"})
			if err != nil {
				return web.StatusOf(err)
			}
			return resp.Status
		},
	} {
		r := newRig(t, nil)
		r.elsewhere(t, 7, nil)
		if code := ask(r); code != 200 {
			t.Errorf("%s: %d", name, code)
		}
	}
}

// remembers is a store that knows the deployment accepted last.
type remembers struct {
	Store
	accepted store.Function
}

func (r remembers) Accepted(namespace, name string) (store.Function, bool) {
	d := r.accepted.Deployment
	return r.accepted, d.Namespace == namespace && d.Service == name
}

// If a deployment cannot run after a restart, the deployment accepted before is served
// until it can.
func TestWhatWasAcceptedBeforeIsServed(t *testing.T) {
	var was store.Function
	image := func(name string) func(f *store.Function) {
		return func(f *store.Function) { f.Deployment.Image = name }
	}
	for name, c := range map[string]struct {
		revision uint64
		body     string
	}{
		"before": {6, "hello"}, "never": {0, "cannot run"}, "later": {8, "cannot run"},
	} {
		r := newRig(t, func(o *Options) {
			was = store.Function{Revision: c.revision, Deployment: types.FunctionDeployment{Service: "mnist", Namespace: DefaultNamespace, Image: "mnist:1"}}
			if c.revision == 0 {
				was.Deployment.Service = "other"
			}
			o.Store = remembers{o.Store, was}
		})
		typo := r.elsewhere(t, 7, image("typo:2"))
		r.controller.refused = map[string]error{"typo:2": errors.New("no such image")}
		if err := r.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		if w := r.do("POST", "/function/mnist", "hello"); !strings.Contains(w.Body.String(), c.body) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if err := r.Adopt(t.Context(), typo); err == nil || !strings.Contains(err.Error(), "no such image") {
			t.Errorf("%s: %v", name, err)
		}
		if name == "before" && !r.controller.deployed["mnist.openfaas-fn"].Restored {
			t.Error("a deployment that was accepted before does not say so")
		}
		r.controller.refused = nil
		r.adopt(t, typo)
		if f := r.controller.deployed["mnist.openfaas-fn"]; f == nil || f.Revision != 7 {
			t.Errorf("%s: %+v runs", name, f)
		}
	}
}
