package processes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/e2e/fakecluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// fakeBundles finds a program for every image but "absent".
type fakeBundles struct {
	mu sync.Mutex
	// edition is part of every fingerprint.
	edition int
}

func (b *fakeBundles) Program(image string) (Program, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if image == "absent" {
		return Program{}, errors.New(`there is no bundle "absent"`)
	}
	p := Program{Dir: image, Env: map[string]string{"fprocess": "./handler", "mode": "http", "greeting": "hello"}, Fingerprint: fmt.Sprint(image, b.edition)}
	if image == "private" {
		p.Network = "private"
	}
	return p, nil
}

func (b *fakeBundles) replace() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.edition++
}

// fakeSecrets is a directory of secrets.
type fakeSecrets string

func (dir fakeSecrets) File(_, secret string) (string, error) {
	file := filepath.Join(string(dir), secret)
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("there is no secret %q", secret)
	}
	return file, nil
}

// rig is a controller with a cluster in memory.
type rig struct {
	t       testing.TB
	backend *fakeBackend
	bundles *fakeBundles
	// invalid is the result of Options.Validate for the process "invalid".
	invalid  error
	secrets  string
	registry *prometheus.Registry
	options  Options

	*Controller
	on       fakecluster.Rig
	revision uint64
}

const (
	coldWait = 10 * time.Second
	patience = 30 * time.Second
)

func newRig(t testing.TB) *rig {
	r := &rig{t: t, backend: newFakeBackend(t), bundles: &fakeBundles{}, secrets: t.TempDir(), registry: prometheus.NewRegistry()}
	r.options = Options{
		Backend: r.backend, Bundles: r.bundles, Validate: r.validate, Secrets: fakeSecrets(r.secrets), Metrics: metrics.New(r.registry), Logger: zerolog.Nop(),
		ColdWait: coldWait, QueueLimit: 20000, Tick: 100 * time.Millisecond, DrainGrace: patience, StopGrace: 5 * time.Second, Dial: r.backend.Dial,
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
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
	in := annotation.Inference{MinReplicas: 1, MaxReplicas: 20, ScaleType: annotation.TypeRPS, ScaleTarget: annotation.DefaultTarget}
	f := fakecluster.Function(name, image, r.revision, in, edit)
	f.Replicas = uint64(f.Inference.MinReplicas)
	return f
}

// between sets the minimum and maximum number of instances.
func between(least, most int) func(*provider.Function) {
	return func(f *provider.Function) { f.Inference.MinReplicas, f.Inference.MaxReplicas = least, most }
}

func (r *rig) deploy(name, image string, edit ...func(*provider.Function)) {
	r.t.Helper()
	r.on.Deploy(r.t, r.Controller, r.function(name, image, edit...))
}

func (r *rig) describe(name string) keeper.Description {
	r.t.Helper()
	return fakecluster.Describe(r.t, r.Controller, name)
}

// shows fails the test unless the status has these numbers.
func (r *rig) shows(name string, replicas, available uint64) {
	r.t.Helper()
	s, ok := r.Status(full(name))
	if !ok || s.Replicas != replicas || s.AvailableReplicas != available {
		r.t.Fatalf("%s shows %d replicas, %d available; want %d and %d", name, s.Replicas, s.AvailableReplicas, replicas, available)
	}
}

// ready waits until this many instances are ready and no others exist.
func (r *rig) ready(name string, n int) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d of %s are ready", n, name), func() bool {
		living := 0
		for _, in := range r.backend.living() {
			if in.Function == full(name) {
				living++
			}
		}
		return r.describe(name).Ready == n && living == n
	})
}

func (r *rig) invoke(name, body string) (string, error) { return r.on.Invoke(r.t, name, body) }

// answered invokes and fails the test unless the image answers.
func (r *rig) answered(name, image string) {
	r.t.Helper()
	r.on.Answered(r.t, name, image)
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

// validate is Options.Validate.
func (r *rig) validate(env map[string]string, bundle string) error {
	if bundle == "" {
		r.t.Error("a bundle without a directory is validated")
	}
	if env["fprocess"] == "invalid" {
		return r.invalid
	}
	return nil
}
