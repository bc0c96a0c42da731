package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/store"
)

// gatedController holds each deployment until its function is let in.
type gatedController struct {
	*fakeController
	// gates are by the function's full name. A function without one is let in at once.
	gates map[string]chan struct{}
	// begun gets the name of each function with a gate whose deployment has begun.
	begun chan string

	deploys, now, highest atomic.Int64
}

func (c *gatedController) Deploy(ctx context.Context, f *Function) (Dispatcher, error) {
	c.deploys.Add(1)
	now := c.now.Add(1)
	defer c.now.Add(-1)
	for was := c.highest.Load(); now > was && !c.highest.CompareAndSwap(was, now); was = c.highest.Load() {
	}
	if gate := c.gates[f.Name]; gate != nil {
		c.begun <- f.Name
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return c.fakeController.Deploy(ctx, f)
}

// stored returns a rig whose store has n functions, of which those with a gate wait. Requests wait for them for long, also
// on a slow machine.
func stored(t testing.TB, n int, gated ...string) (*rig, *gatedController) {
	t.Helper()
	before := newRig(t, nil)
	for i := range n {
		if err := before.store.PutFunction(storedFunction(i)); err != nil {
			t.Fatal(err)
		}
	}
	return restarted(t, before, func(o *Options) { o.ColdWait = time.Minute }, gated...)
}

func storedFunction(i int) store.Function {
	return store.Function{Revision: uint64(i + 1), CreatedAt: now, Replicas: 3, Deployment: types.FunctionDeployment{
		Service: fmt.Sprintf("f-%04d", i), Namespace: DefaultNamespace, Image: "mnist:latest", Annotations: &map[string]string{"com.openfaas.slo.latency": "50ms"}}}
}

func restarted(t testing.TB, before *rig, edit func(o *Options), gated ...string) (*rig, *gatedController) {
	var c *gatedController
	r := newRig(t, func(o *Options) {
		c = &gatedController{fakeController: o.Controller.(*fakeController), gates: map[string]chan struct{}{}, begun: make(chan string, len(gated))}
		for _, name := range gated {
			c.gates[FullName(name, DefaultNamespace)] = make(chan struct{})
		}
		o.Store, o.Controller = before.store, c
		if edit != nil {
			edit(o)
		}
	})
	r.store = before.store
	return r, c
}

// restoring begins to restore in the background. ended is closed at its end.
func (r *rig) restoring(t *testing.T, ctx context.Context) (ended <-chan struct{}) {
	t.Helper()
	restore, err := r.BeginRestore()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		restore(ctx)
	}()
	return done
}

// While functions are restored, several at a time, the others serve. A request waits for
// its own function only.
func TestServesWhileFunctionsAreRestored(t *testing.T) {
	const n = 300
	r, c := stored(t, n, "f-0000", "f-0001")
	ended := r.restoring(t, t.Context())
	<-c.begun
	<-c.begun
	close(c.gates["f-0001.openfaas-fn"])
	if w := r.do("POST", "/function/f-0299", "x"); w.Code != 200 {
		t.Errorf("a function that is back: %d %s", w.Code, w.Body)
	}
	wantSentence(t, r.do("POST", "/function/nobody", "x"), 404, "nobody")
	if w := r.do("GET", "/healthz", ""); w.Code != 200 {
		t.Errorf("health: %d", w.Code)
	}
	var waiting sync.WaitGroup
	answers := map[string]*httptest.ResponseRecorder{}
	for name, ask := range map[string]func() *httptest.ResponseRecorder{
		"request":  func() *httptest.ResponseRecorder { return r.do("POST", "/function/f-0000", "x") },
		"describe": func() *httptest.ResponseRecorder { return r.do("GET", "/system/function/f-0000", "") },
		"list":     func() *httptest.ResponseRecorder { return r.do("GET", "/system/functions", "") },
	} {
		w := httptest.NewRecorder()
		answers[name] = w
		waiting.Go(func() { *w = *ask() })
	}
	if !r.controller.missing("f-0000.openfaas-fn") || r.controller.missing("f-0299.openfaas-fn") {
		t.Error("the controller does not know which function is missing")
	}
	close(c.gates["f-0000.openfaas-fn"])
	<-ended
	waiting.Wait()
	for name, w := range answers {
		if w.Code != 200 {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	if got := strings.Count(answers["list"].Body.String(), `"name":`); got != n {
		t.Errorf("the list has %d functions, want %d", got, n)
	}
	if r.controller.missing("f-0000.openfaas-fn") {
		t.Error("the controller still waits for a function")
	}
	if got := c.deploys.Load(); got != n {
		t.Errorf("%d deployments, want %d", got, n)
	}
	if got, most := c.highest.Load(), int64(max(leastRestorers, runtime.GOMAXPROCS(0))); got < 2 || got > most {
		t.Errorf("%d deployments at a time, want 2 to %d", got, most)
	}
	if len(r.arriving.pending) != 0 {
		t.Errorf("%d functions are still arriving", len(r.arriving.pending))
	}
}

// A deployment of a function that is not back yet comes after it.
func TestDeploymentsWaitForTheirFunction(t *testing.T) {
	r, c := stored(t, 3, "f-0001")
	ended := r.restoring(t, t.Context())
	<-c.begun
	deployed := make(chan int, 1)
	go func() {
		deployed <- r.do("POST", "/system/functions", deployment(func(d *types.FunctionDeployment) { d.Service, d.Image = "f-0001", "mnist:2" })).Code
	}()
	c.gates["f-0001.openfaas-fn"] <- struct{}{}
	<-ended
	<-c.begun
	close(c.gates["f-0001.openfaas-fn"])
	if code := <-deployed; code != 202 {
		t.Errorf("deployed: %d", code)
	}
	got := r.controller.deployed["f-0001.openfaas-fn"]
	if got.Deployment.Image != "mnist:2" || got.Replicas != 3 {
		t.Errorf("%s with %d instances runs, want mnist:2 with the 3 of before", got.Deployment.Image, got.Replicas)
	}
	if got.Restored || !r.controller.deployed["f-0000.openfaas-fn"].Restored {
		t.Error("a deployment does not say whether it is of an earlier provider")
	}
}

// A provider that shuts down does not wait for functions. Instances whose functions are not
// back stay unknown, and are not stopped for that.
func TestShutdownEndsRestoring(t *testing.T) {
	r, c := stored(t, 20, "f-0000", "f-0001", "f-0002", "f-0003")
	ctx, cancel := context.WithCancel(t.Context())
	ended := r.restoring(t, ctx)
	for range 4 {
		<-c.begun
	}
	answered := make(chan *httptest.ResponseRecorder, 1)
	go func() { answered <- r.do("POST", "/function/f-0000", "x") }()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-ended
	wantSentence(t, <-answered, 503, "shutting down")
	if !r.controller.missing("f-0000.openfaas-fn") {
		t.Error("the controller takes the functions that are not back for gone")
	}
}

// Load balancers ask the other replicas while one restores its functions.
func TestReplicaIsNotHealthyBeforeItsFunctionsAreBack(t *testing.T) {
	before, _ := stored(t, 3)
	r, c := restarted(t, before, func(o *Options) { o.Several = true }, "f-0000")
	ended := r.restoring(t, t.Context())
	<-c.begun
	wantSentence(t, r.do("GET", "/healthz", ""), 503, "restoring")
	close(c.gates["f-0000.openfaas-fn"])
	<-ended
	if w := r.do("GET", "/healthz", ""); w.Code != 200 {
		t.Errorf("health: %d", w.Code)
	}
}

// What a change of one function copies does not grow with the number of functions.
func TestPublishingCopiesNoOtherFunction(t *testing.T) {
	copied := func(n int) float64 {
		r := newRig(t, nil)
		r.fill(t, n)
		of, err := r.find(address{"function-00000", DefaultNamespace})
		if err != nil {
			t.Fatal(err)
		}
		const times = 100
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range times {
			r.publish(of)
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc-before.TotalAlloc) / times
	}
	if few, many := copied(20), copied(400); many > 2*few+1024 {
		t.Errorf("publishing one function takes %.0f bytes among 20 and %.0f among 400", few, many)
	}
}

// A function that fails does not keep others from coming back.
func TestRestoreSkipsNothingAfterAFailure(t *testing.T) {
	before, _ := stored(t, 40)
	bad := storedFunction(7)
	bad.Deployment.Image = "gone"
	if err := before.store.PutFunction(bad); err != nil {
		t.Fatal(err)
	}
	r, _ := restarted(t, before, nil)
	r.controller.refused = map[string]error{"gone": errors.New("the bundle is gone")}
	if err := r.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.names(); got != 80 {
		t.Errorf("%d names, want two for each of 40 functions", got)
	}
	wantSentence(t, r.do("POST", "/function/f-0007", "x"), 503, "the bundle is gone")
}

// BenchmarkRestore measures what the provider itself needs to bring back 2,000 functions.
// `faas-infer-lab bench restart` measures it with models and processes.
func BenchmarkRestore(b *testing.B) {
	before, _ := stored(b, 2000)
	for b.Loop() {
		r, _ := restarted(b, before, nil)
		if err := r.Restore(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/2000-functions")
}
