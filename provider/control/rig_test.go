package control

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openfaas/faas-provider/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// rig is a controller with a cluster in memory.
type rig struct {
	t           testing.TB
	backend     *fakeBackend
	models      *fakeModels
	profiles    *fakeProfiles
	corrections *fakeCorrections
	registry    *prometheus.Registry
	options     Options

	*Controller
	stopRun     context.CancelFunc
	ran         chan struct{}
	revision    uint64
	dispatchers sync.Map
}

const (
	keepAlive = 30 * time.Second
	coldWait  = 10 * time.Second
)

func newRig(t testing.TB) *rig {
	r := &rig{t: t, backend: newFakeBackend(t), models: &fakeModels{}, profiles: &fakeProfiles{kept: map[string]*profiler.Profile{}},
		corrections: &fakeCorrections{kept: map[string]correction.State{}}, registry: prometheus.NewRegistry()}
	r.options = Options{
		Backend: r.backend, System: production(), Cold: coldstart.NewFixed(keepAlive), Models: r.models, Profiles: r.profiles, Corrections: r.corrections,
		Bundles: fakeBundles{}, Secrets: fakeSecrets{}, Metrics: metrics.New(r.registry), Logger: zerolog.Nop(), Policy: batching.SharedName,
		ColdWait: coldWait, QueueLimit: 20000, Tick: 100 * time.Millisecond, StopGrace: 5 * time.Second, Engine: "engine", Machine: "machine", Dial: r.backend.Dial,
	}
	return r
}

// open makes the controller, without running it.
func (r *rig) open() {
	c, err := New(r.t.Context(), r.options)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Controller = c
}

// run begins to run it.
func (r *rig) run() {
	ctx, cancel := context.WithCancel(context.Background())
	r.stopRun, r.ran = cancel, make(chan struct{})
	go func() {
		defer close(r.ran)
		r.Run(ctx)
	}()
}

// end stops Run without closing the controller, as a crash would.
func (r *rig) end() {
	r.stopRun()
	<-r.ran
}

// close closes the controller and checks that nothing is left.
func (r *rig) close() {
	r.end()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		r.t.Errorf("close: %v", err)
	}
	if left := r.backend.living(); len(left) > 0 {
		r.t.Errorf("%d instances are left", len(left))
	}
	r.backend.work.Wait()
}

// try runs f with a controller in a bubble, in which time passes by itself.
func try(t *testing.T, f func(r *rig)) {
	t.Helper()
	tryWith(t, func(*Options) {}, f)
}

// tryWith is try with other options.
func tryWith(t *testing.T, edit func(*Options), f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		edit(&r.options)
		r.open()
		r.run()
		defer r.close()
		f(r)
	})
}

func full(name string) string { return provider.FullName(name, provider.DefaultNamespace) }

// function is the next revision of a function of an image.
func (r *rig) function(name, image string, edit ...func(*provider.Function)) *provider.Function {
	r.revision++
	f := &provider.Function{
		Name: full(name), Revision: r.revision, CreatedAt: time.Now(),
		Deployment: types.FunctionDeployment{Service: name, Namespace: provider.DefaultNamespace, Image: image},
		Inference:  annotation.Inference{IsInference: true, SLO: 200 * time.Millisecond, Percentile: 99, MaxBatch: 8},
	}
	for _, e := range edit {
		e(f)
	}
	return f
}

func (r *rig) deploy(name, image string, edit ...func(*provider.Function)) {
	r.t.Helper()
	d, err := r.Deploy(r.t.Context(), r.function(name, image, edit...))
	if err != nil {
		r.t.Fatalf("deploy %s: %v", name, err)
	}
	r.dispatchers.Store(name, d)
}

// measured deploys and waits until the model's times are known.
func (r *rig) measured(name, image string, edit ...func(*provider.Function)) {
	r.t.Helper()
	r.deploy(name, image, edit...)
	r.until("measured", func() bool { return r.describe(name).Measured })
}

func (r *rig) describe(name string) keeper.Description {
	d, ok := r.Describe(full(name))
	if !ok {
		r.t.Fatalf("%s is not deployed", name)
	}
	return d
}

func (r *rig) invoke(name, body string) (string, error) {
	d, _ := r.dispatchers.Load(name)
	got, err := d.(provider.Dispatcher).Invoke(r.t.Context(), &frame.Request{Method: "POST", Path: "/", Header: http.Header{}, Body: []byte(body)})
	if err != nil {
		return "", err
	}
	return string(got.Body), nil
}

// answered invokes and fails the test unless model answers.
func (r *rig) answered(name, model string) {
	r.t.Helper()
	got, err := r.invoke(name, "x")
	if err != nil || got != model+":x" {
		r.t.Fatalf("%s answered %q, %v; want it from %s", name, got, err, model)
	}
}

// until waits, in the bubble's time, for a condition.
func (r *rig) until(what string, condition func() bool) {
	r.t.Helper()
	for range 6000 {
		if condition() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("not within a minute: %s", what)
}

// load sends a request every interval for d and returns how many of them were
// not answered. It waits for all answers.
func (r *rig) load(name string, interval, d time.Duration) (failed int) {
	errs := make(chan error, 1+int(d/interval))
	n := 0
	for began := time.Now(); time.Since(began) < d; time.Sleep(interval) {
		n++
		go func() {
			_, err := r.invoke(name, "x")
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			r.t.Logf("%s: %v", name, err)
			failed++
		}
	}
	return failed
}

// only returns the one instance that lives.
func (r *rig) only() cluster.Instance {
	r.t.Helper()
	living := r.backend.living()
	if len(living) != 1 {
		r.t.Fatalf("%d instances live, want 1", len(living))
	}
	return living[0]
}

// production is the system that the provider runs.
func production() systems.System {
	s, err := systems.ByName(systems.Default)
	if err != nil {
		panic(err)
	}
	return s
}

// greedy is a system that places one instance after the other.
func greedy(s systems.System) systems.System {
	s, err := s.WithScheduler("greedy")
	if err != nil {
		panic(err)
	}
	return s
}
