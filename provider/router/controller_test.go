package router

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/web"
)

// answering is a dispatcher of one of the fake parts.
type answering struct {
	name string
	// takes is how long a request takes.
	takes  time.Duration
	closed chan struct{}
}

var errClosed = errors.New("closed")

func (d *answering) Invoke(ctx context.Context, _ *frame.Request) (*frame.Response, error) {
	select {
	case <-d.closed:
		return nil, errClosed
	default:
	}
	select {
	case <-time.After(d.takes):
		return &frame.Response{Status: 200, Body: []byte(d.name)}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.closed:
		return nil, errClosed
	}
}

func (d *answering) InvokePatiently(ctx context.Context, q *frame.Request, _ time.Duration) (*frame.Response, error) {
	return d.Invoke(ctx, q)
}

// streaming is an answering that can forward.
type streaming struct{ *answering }

func (d streaming) Forward(w http.ResponseWriter, r *http.Request, _ string, _ time.Duration, _ func(int64) error) int {
	resp, err := d.Invoke(r.Context(), nil)
	if err != nil {
		return web.WriteError(w, err)
	}
	w.Write(resp.Body)
	return resp.Status
}

// fakePart is a controller in memory.
type fakePart struct {
	name string
	kind cluster.Kind

	mu        sync.Mutex
	deployed  map[string]*answering
	refuses   error
	ready     bool
	failure   string
	takes     time.Duration
	releases  int
	removes   int
	ran, ends bool
	missing   func(string) bool
	replicas  uint64
}

func (p *fakePart) Deploy(_ context.Context, f *provider.Function) (provider.Dispatcher, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuses != nil {
		return nil, p.refuses
	}
	p.replicas = f.Replicas
	d, ok := p.deployed[f.Name]
	if !ok {
		d = &answering{name: p.name, takes: p.takes, closed: make(chan struct{})}
		p.deployed[f.Name] = d
	}
	if p.kind == cluster.Process {
		return streaming{d}, nil
	}
	return d, nil
}

func (p *fakePart) end(name string) bool {
	d, ok := p.deployed[name]
	if ok {
		delete(p.deployed, name)
		close(d.closed)
	}
	return ok
}

func (p *fakePart) Remove(_ context.Context, name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end(name) {
		p.removes++
	}
	return nil
}

func (p *fakePart) Release(_ context.Context, name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end(name) {
		p.releases++
	}
	return nil
}

func (p *fakePart) has(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deployed[name] != nil
}

func (p *fakePart) Scale(name string, _ uint64) error {
	if !p.has(name) {
		return errors.New("absent")
	}
	return nil
}

func (p *fakePart) Restoring(missing func(string) bool) { p.missing = missing }

func (p *fakePart) Status(name string) (provider.Status, bool) {
	return provider.Status{Replicas: uint64(len(p.name))}, p.has(name)
}

func (p *fakePart) Describe(name string) (keeper.Description, bool) {
	return keeper.Description{Problem: p.name}, p.has(name)
}

func (p *fakePart) able(string) (bool, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready, p.failure
}

func (p *fakePart) set(ready bool, failure string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready, p.failure = ready, failure
}

func (p *fakePart) Run(ctx context.Context) {
	p.ran = true
	<-ctx.Done()
	p.ends = true
}

func (p *fakePart) Close(context.Context) error { return nil }

type rig struct {
	t                 *testing.T
	models, processes *fakePart
	*Controller
}

func try(t *testing.T, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, models: &fakePart{name: "model", deployed: map[string]*answering{}, ready: true},
			processes: &fakePart{name: "process", kind: cluster.Process, deployed: map[string]*answering{}, ready: true}}
		r.Controller = newController(r.models, r.processes, zerolog.Nop())
		defer r.Close(t.Context())
		f(r)
	})
}

func (r *rig) deploy(kind cluster.Kind) (provider.Dispatcher, error) {
	return r.Deploy(r.t.Context(), &provider.Function{Name: "f.n", Inference: annotation.Inference{IsInference: kind == cluster.Model}})
}

func (r *rig) deployed(kind cluster.Kind) provider.Dispatcher {
	r.t.Helper()
	d, err := r.deploy(kind)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, forwards := d.(provider.Forwarder); forwards != (kind == cluster.Process) {
		r.t.Fatalf("a dispatcher of kind %q forwards: %v", kind, forwards)
	}
	return d
}

// answers fails the test unless this part answers.
func (r *rig) answers(d provider.Dispatcher, want *fakePart) {
	r.t.Helper()
	resp, err := d.Invoke(r.t.Context(), nil)
	if err != nil || string(resp.Body) != want.name {
		r.t.Fatalf("answered %v, %v; want %s", resp, err, want.name)
	}
	if f, ok := d.(provider.Forwarder); ok {
		w := httptest.NewRecorder()
		if code := f.Forward(w, httptest.NewRequest("GET", "/", nil), "/", 0, nil); code != 200 {
			r.t.Fatalf("forwarding answered %d %s", code, w.Body)
		}
	}
}

func TestBothKindsAreRestored(t *testing.T) {
	try(t, func(r *rig) {
		r.Restoring(func(name string) bool { return name == "f" })
		for _, p := range []*fakePart{r.models, r.processes} {
			if !p.missing("f") || p.missing("g") {
				t.Errorf("the %s part does not know what is missing", p.name)
			}
		}
	})
}

func TestEachKindHasItsController(t *testing.T) {
	for _, kind := range []cluster.Kind{cluster.Model, cluster.Process} {
		try(t, func(r *rig) {
			mine := r.parts[kind].(*fakePart)
			d := r.deployed(kind)
			r.answers(d, mine)
			if again := r.deployed(kind); !same(again, d) {
				t.Error("the same dispatcher comes back in another wrapper")
			}
			if s, ok := r.Status("f.n"); !ok || s.Replicas != uint64(len(mine.name)) {
				t.Errorf("status %+v", s)
			}
			if d, ok := r.Describe("f.n"); !ok || d.Problem != mine.name {
				t.Errorf("description %+v", d)
			}
			if err := r.Scale("f.n", 1); err != nil {
				t.Error(err)
			}
			mine.refuses = errors.New("no")
			if _, err := r.deploy(kind); !errors.Is(err, mine.refuses) {
				t.Errorf("error %v", err)
			}
			r.answers(d, mine)
			if err := r.Remove(r.t.Context(), "f.n"); err != nil || mine.removes != 1 {
				t.Errorf("%d removals, %v", mine.removes, err)
			}
			if _, ok := r.Status("f.n"); ok {
				t.Error("it is still there")
			}
			if err := errors.Join(r.Remove(r.t.Context(), "f.n"), r.Remove(r.t.Context(), "g.n")); err != nil {
				t.Error(err)
			}
			if err := r.Scale("f.n", 1); err == nil {
				t.Error("what is not there can be scaled")
			}
		})
	}
}

// same reports whether two dispatchers belong to the same target.
func same(a, b provider.Dispatcher) bool {
	bare := func(d provider.Dispatcher) *target {
		if f, ok := d.(*forwarding); ok {
			return f.target
		}
		return d.(*target)
	}
	return bare(a) == bare(b)
}

// A function changes its kind under load. No request is lost, and the former kind goes.
func TestMove(t *testing.T) {
	for _, c := range []struct{ from, to cluster.Kind }{{cluster.Model, cluster.Process}, {cluster.Process, cluster.Model}} {
		try(t, func(r *rig) {
			r.models.takes, r.processes.takes = 300*time.Millisecond, 700*time.Millisecond
			from, to := r.parts[c.from].(*fakePart), r.parts[c.to].(*fakePart)
			to.set(false, "")
			first := r.deployed(c.from)
			var mu sync.Mutex
			current := first
			var wait sync.WaitGroup
			failed := 0
			invoke := func() {
				mu.Lock()
				d := current
				mu.Unlock()
				wait.Go(func() {
					time.Sleep(500 * time.Millisecond) // Its body comes slowly.
					if _, err := d.Invoke(context.Background(), nil); err != nil {
						mu.Lock()
						defer mu.Unlock()
						failed++
						t.Log(err)
					}
				})
			}
			wait.Go(func() {
				for range 1000 {
					invoke()
					time.Sleep(10 * time.Millisecond)
				}
			})
			time.Sleep(time.Second)
			time.AfterFunc(3*time.Second, func() { to.set(true, "") })
			began := time.Now()
			second := r.deployed(c.to)
			if waited := time.Since(began); waited >= 3*time.Second != (c.to == cluster.Process) {
				t.Errorf("the deployment took %v", waited)
			}
			mu.Lock()
			current = second
			mu.Unlock()
			wait.Wait()
			if failed > 0 {
				t.Errorf("%d requests failed", failed)
			}
			if from.has("f.n") || from.releases != 1 || from.removes != 0 || !to.has("f.n") {
				t.Errorf("%s has it: %v; %s: %v", from.name, from.has("f.n"), to.name, to.has("f.n"))
			}
			r.answers(second, to)
			if resp, err := first.Invoke(r.t.Context(), nil); err != nil || string(resp.Body) != to.name {
				t.Errorf("who asks the old dispatcher is answered %v, %v", resp, err)
			}
			if err := r.Remove(r.t.Context(), "f.n"); err != nil || to.has("f.n") {
				t.Errorf("after the removal: %v", err)
			}
		})
	}
}

// A function that cannot become the other kind keeps its kind.
func TestMoveThatFails(t *testing.T) {
	try(t, func(r *rig) {
		d := r.deployed(cluster.Model)
		r.processes.refuses = errors.New("no program")
		if _, err := r.deploy(cluster.Process); !errors.Is(err, r.processes.refuses) {
			t.Errorf("error %v", err)
		}
		r.answers(d, r.models)
		r.processes.refuses = nil
		r.processes.set(false, "exit status 3")
		_, err := r.deploy(cluster.Process)
		var known web.HTTPError
		if !errors.As(err, &known) || known.HTTPStatus() != 400 || !strings.Contains(err.Error(), "exit status 3") {
			t.Errorf("error %v", err)
		}
		r.answers(d, r.models)
		time.Sleep(time.Minute)
		if r.processes.has("f.n") || r.processes.releases != 1 || r.models.releases != 0 {
			t.Error("what failed is left")
		}
		if d, _ := r.Describe("f.n"); d.Problem != "model" {
			t.Error("it is not what it was")
		}
		// While a model cannot be measured, the ordinary function keeps serving.
		r.processes.set(true, "")
		d = r.deployed(cluster.Process)
		time.Sleep(time.Minute)
		r.models.set(false, "")
		d = r.deployed(cluster.Model)
		time.Sleep(time.Hour)
		r.answers(d, r.processes)
		// The change can be undone.
		d = r.deployed(cluster.Process)
		r.answers(d, r.processes)
		time.Sleep(time.Minute)
		if r.models.has("f.n") || r.processes.releases != 1 {
			t.Error("the model is left, or what serves is not")
		}
	})
}

// Deploy does not wait for slow functions for ever.
func TestMoveToASlowStarter(t *testing.T) {
	try(t, func(r *rig) {
		r.deployed(cluster.Model)
		r.processes.set(false, "")
		began := time.Now()
		d := r.deployed(cluster.Process)
		if waited := time.Since(began); waited != readyWait {
			t.Errorf("waited %v", waited)
		}
		r.answers(d, r.processes)
		gone, hangUp := context.WithCancel(r.t.Context())
		r.deployed(cluster.Model)
		time.AfterFunc(time.Second, hangUp)
		_, err := r.Deploy(gone, &provider.Function{Name: "f.n"})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}

// A function may change its kind back and forth at any pace. It ends up with the last
// kind; no request is lost and nothing is left over.
func TestBackAndForth(t *testing.T) {
	for _, pace := range []time.Duration{0, moveLook, 700 * time.Millisecond, leastStay + moveLook, 5 * time.Second} {
		for _, last := range []int{6, 7} {
			try(t, func(r *rig) {
				r.models.takes, r.processes.takes = 10*time.Millisecond, 20*time.Millisecond
				var d provider.Dispatcher
				for i := range last {
					d = r.deployed([]cluster.Kind{cluster.Model, cluster.Process}[i%2])
					for range 3 {
						found := d
						go func() {
							if _, err := found.Invoke(context.Background(), nil); err != nil {
								t.Errorf("pace %v: %v", pace, err)
							}
						}()
					}
					time.Sleep(pace)
				}
				time.Sleep(2 * longestStay)
				want, other := r.models, r.processes
				if last%2 == 0 {
					want, other = other, want
				}
				r.answers(d, want)
				if other.has("f.n") {
					t.Errorf("pace %v: %s has it still", pace, other.name)
				}
			})
		}
	}
}

func TestRemoveDuringAMove(t *testing.T) {
	try(t, func(r *rig) {
		r.deployed(cluster.Model)
		r.deployed(cluster.Process)
		if err := r.Remove(r.t.Context(), "f.n"); err != nil {
			t.Fatal(err)
		}
		if r.models.has("f.n") || r.processes.has("f.n") {
			t.Error("something is left")
		}
		if r.models.removes != 0 || r.processes.removes != 1 {
			t.Error("what was counted is not forgotten once")
		}
	})
}

func TestRunAndClose(t *testing.T) {
	try(t, func(r *rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		ran := make(chan struct{})
		go func() {
			defer close(ran)
			r.Run(ctx)
		}()
		r.deployed(cluster.Process)
		r.models.set(false, "")
		r.deployed(cluster.Model) // On its way when everything ends.
		time.Sleep(time.Second)
		cancel()
		<-ran
		if !r.models.ends || !r.processes.ends {
			t.Error("not both have run")
		}
	})
}
