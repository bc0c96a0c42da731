package control

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/e2e/fakecluster"
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
	on       fakecluster.Rig
	revision uint64
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
func (r *rig) run() { r.on.Run(r.Controller) }

// end stops Run without closing the controller, as a crash would.
func (r *rig) end() { r.on.End() }

// close closes the controller and checks that nothing is left.
func (r *rig) close() { r.on.Close(r.t, r.Controller, r.backend.Backend) }

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

func full(name string) string { return fakecluster.Full(name) }

// function is the next revision of a function of an image.
func (r *rig) function(name, image string, edit ...func(*provider.Function)) *provider.Function {
	r.revision++
	in := annotation.Inference{IsInference: true, SLO: 200 * time.Millisecond, Percentile: 99, MaxBatch: 8}
	return fakecluster.Function(name, image, r.revision, in, edit)
}

func (r *rig) deploy(name, image string, edit ...func(*provider.Function)) {
	r.t.Helper()
	r.on.Deploy(r.t, r.Controller, r.function(name, image, edit...))
}

// measured deploys and waits until the model's times are known.
func (r *rig) measured(name, image string, edit ...func(*provider.Function)) {
	r.t.Helper()
	r.deploy(name, image, edit...)
	r.until("measured", func() bool { return r.describe(name).Measured })
}

func (r *rig) describe(name string) keeper.Description {
	r.t.Helper()
	return fakecluster.Describe(r.t, r.Controller, name)
}

func (r *rig) invoke(name, body string) (string, error) { return r.on.Invoke(r.t, name, body) }

// answered invokes and fails the test unless model answers.
func (r *rig) answered(name, model string) {
	r.t.Helper()
	r.on.Answered(r.t, name, model)
}

// until waits, in the bubble's time, for a condition.
func (r *rig) until(what string, condition func() bool) {
	r.t.Helper()
	fakecluster.Until(r.t, what, condition)
}

// load sends a request every interval for d and returns how many of them were
// not answered. It waits for all answers.
func (r *rig) load(name string, interval, d time.Duration) (failed int) {
	r.t.Helper()
	return r.on.Load(r.t, name, interval, d)
}

// only returns the one instance that lives.
func (r *rig) only() cluster.Instance {
	r.t.Helper()
	return fakecluster.Only(r.t, r.backend.Backend)
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
