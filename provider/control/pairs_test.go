package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/papers/asyfunc/dividing"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// fakeShadows divides every model but "python" into a head that computes much and a tail that weighs
// much.
type fakeShadows struct {
	mu     sync.Mutex
	told   []string
	blocks int
	// recorded are the pairs that were recorded.
	recorded []string
	// fails is how many times the blocks are not found, and why.
	fails int
	why   error
	// refuses is why bodies refuse shadows, nil if they do not; refused counts how often.
	refuses error
	refused int
	// useless are the shadows that do not help.
	useless map[cluster.InstanceID]bool
	// unwanted: nothing is kept for the next shadow.
	unwanted atomic.Bool
	// counted is what bodies report.
	counted metrics.ShadowCounts
}

func (*fakeShadows) Check(_ *provider.Function, file string) error {
	if file == "python" {
		return errors.New("the model runs in Python")
	}
	return nil
}

func (s *fakeShadows) Blocks(context.Context, string) (*shadow.Model, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocks++
	if s.fails--; s.fails >= 0 {
		return nil, s.why
	}
	m := &shadow.Model{Name: "fake", Rows: []int{1, 2, 4, 8}, Threads: []int{1, 2}, Own: 1 << 20}
	for i, weight := range []int64{1 << 20, 100 << 20} {
		b := shadow.Block{Name: fmt.Sprint("b", i), MACs: 1000, Weights: weight, Activations: 1000, In: 100, Out: 100, Load: 1}
		for _, threads := range m.Threads {
			var ms []float64
			for _, rows := range m.Rows {
				ms = append(ms, []float64{40, 4}[i]*float64(rows)/float64(threads))
			}
			b.Ms = append(b.Ms, ms)
		}
		m.Blocks = append(m.Blocks, b)
	}
	return m, nil
}

func (s *fakeShadows) Pair(_ context.Context, id, body cluster.InstanceID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recorded = append(s.recorded, string(id)+" to "+string(body))
	return nil
}

// fakeShadowsOn are those of one controller.
type fakeShadowsOn struct {
	*fakeShadows
	finder *dividing.Finder
}

func (s *fakeShadows) on(f *latency.Finder) Shadows {
	return fakeShadowsOn{s, dividing.New(f, s.Blocks, func() shadow.Transfer { return shadow.Transfer{Fixed: 0.3, PerMiB: 0.1} })}
}

func (s fakeShadowsOn) Divide(ctx context.Context, f *provider.Function, file string, planned func() (scaling.Function, capacity.Options)) (ways []Division, why string, err error) {
	found, why, err := s.finder.Divide(ctx, f, file, planned)
	for _, d := range found {
		ways = append(ways, d)
	}
	return ways, why, err
}

func (s *fakeShadows) Unwanted() { s.unwanted.Store(true) }

func (s *fakeShadows) Tell(_ context.Context, body cluster.Instance, part string, shadows []cluster.Instance) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	order := string(body.ID) + ":" + part
	for _, x := range shadows {
		order += " " + x.Address
	}
	if len(shadows) > 0 && s.refuses != nil {
		s.refused++
		return s.refuses
	}
	s.told = append(s.told, order)
	return nil
}

func (s *fakeShadows) Look(_ context.Context, _ cluster.Instance, shadows []cluster.Instance) (r ShadowReport, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range shadows {
		if s.useless[x.ID] {
			r.Useless = append(r.Useless, x.ID)
		}
	}
	r.Counted, r.Weights = s.counted, 101<<20
	return r, nil
}

func (s *fakeShadows) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.told) == 0 {
		return ""
	}
	return s.told[len(s.told)-1]
}

// helper is an engine that gives every instance a shadow as soon as it may.
type helper struct {
	systems.Scaler
	// paused: at some look no shadow could start. unpaired: at some look there was no pairing. parts
	// makes it stop all shadows, and start no more.
	paused, unpaired, parts atomic.Bool
}

func (h *helper) Scale(now time.Time, functions []scaling.Function, nodes []cluster.Node) scaling.Plan {
	plan := h.Scaler.Scale(now, functions, nodes)
	for _, f := range functions {
		h.paused.Store(h.paused.Load() || f.NoShadows)
		h.unpaired.Store(h.unpaired.Load() || len(f.Pairings) == 0)
		plan.Stop = slices.DeleteFunc(plan.Stop, func(s scaling.Stop) bool {
			return slices.ContainsFunc(f.Shadows, func(in scaling.Running) bool { return in.ID == s.ID })
		})
		at := slices.IndexFunc(f.Instances, func(in scaling.Running) bool { return in.Paired && in.State == cluster.Ready })
		if h.parts.Load() {
			for _, in := range f.Shadows {
				if in.State == cluster.Ready {
					plan.Stop = append(plan.Stop, scaling.Stop{Function: f.Name, ID: in.ID, Reason: scaling.Reason{Why: scaling.Surplus}})
				}
			}
			continue
		}
		if len(f.Shadows) > 0 || len(f.Pairings) == 0 || f.NoShadows || at < 0 {
			continue
		}
		x, body := f.Pairings[0], f.Instances[at]
		plan.Start = append(plan.Start, scaling.Start{
			Function: f.Name, Revision: f.Revision, Config: x.Config, Artefact: body.Artefact, Node: body.Node, Role: cluster.Shadow, Part: x.Part, Body: body.ID,
		})
	}
	return plan
}

func withShadows(f *provider.Function) {
	f.Inference.Shadow, f.Inference.SLO = annotation.ShadowAuto, time.Second
}

// helped deploys f, waits until its instance has a shadow, and returns both.
func (r *rig) helped(shadows *fakeShadows, image string, edit ...func(*provider.Function)) (body, s cluster.Instance) {
	r.t.Helper()
	r.mu.Lock()
	r.engine = &helper{Scaler: r.engine}
	r.mu.Unlock()
	r.measured("f", image, append([]func(*provider.Function){withShadows}, edit...)...)
	r.answered("f", image)
	r.until("told", func() bool { return strings.Contains(shadows.last(), " f-") })
	for _, in := range r.backend.living() {
		if in.Role == cluster.Shadow {
			s = in
		} else if in.Paired {
			body = in
		}
	}
	return body, s
}

// A body is told its shadow when that is ready, and that it has none when that exits; requests go to
// the body only. A provider that takes both over tells the body again.
func TestBodiesAreToldTheirShadows(t *testing.T) {
	shadows := &fakeShadows{}
	tryWith(t, func(o *Options) { o.Shadows = shadows.on }, func(r *rig) {
		body, s := r.helped(shadows, "model")
		if !body.Paired || s.Body != body.ID || s.Part != "0:1" || shadows.last() != fmt.Sprintf("%s:0:1 %s", body.ID, s.ID) {
			t.Fatalf("the body %+v was told %q; its shadow is %+v", body.InstanceSpec, shadows.last(), s.InstanceSpec)
		}
		for range 5 {
			r.answered("f", "model")
		}
		r.mu.Lock()
		fn := r.functions[full("f")]
		in := fn.Sorted()[0]
		if d := in.describe(); in.helped == nil || d.Config.Concurrency != 2 || d.Exec[7] >= 2*in.table[7] || !slices.IsSorted(d.Exec) {
			t.Errorf("the policy knows %d streams with %v of the pair, %v alone", d.Config.Concurrency, d.Exec, in.table)
		}
		r.mu.Unlock()
		if s, _ := r.Status(full("f")); s.Replicas != 1 || !strings.Contains(s.Plan, "shadows: 1 for 1 instances") {
			t.Errorf("shown as %+v", s)
		}
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour { return behaviour{Refuse: errors.New("no")} })
		r.backend.crash(s.ID, "killed")
		r.until("alone", func() bool { return shadows.last() == string(body.ID)+":" })
		r.answered("f", "model")
	})
	if shadows.blocks != 1 {
		t.Errorf("the blocks were found %d times", shadows.blocks)
	}
}

// A deployment that turns shadows on replaces instances that cannot have any, without a gap. One that
// changes nothing else keeps bodies.
func TestTurningShadowsOn(t *testing.T) {
	shadows := &fakeShadows{}
	tryWith(t, func(o *Options) { o.Shadows = shadows.on }, func(r *rig) {
		r.measured("f", "model", func(f *provider.Function) { f.Inference.SLO = time.Second })
		r.answered("f", "model")
		plain := r.only()
		failed := make(chan int, 1)
		go func() { failed <- r.load("f", 20*time.Millisecond, 10*time.Second) }()
		body, _ := r.helped(shadows, "model")
		if n := <-failed; n > 0 {
			t.Errorf("%d requests failed", n)
		}
		if plain.Paired || !body.Paired || r.lives(plain.ID) {
			t.Errorf("%+v was replaced by %+v", plain, body)
		}
		r.deploy("f", "model", withShadows)
		r.until("served", func() bool {
			s, _ := r.Status(full("f"))
			return strings.Contains(s.Plan, "shadows: 1 for 1 instances")
		})
		time.Sleep(5 * time.Second)
		if !r.lives(body.ID) {
			t.Errorf("the body was replaced")
		}
	})
}

// A function's shadows end with it, and so does what is kept for the next one.
func TestShadowsOfARemovedFunction(t *testing.T) {
	shadows := &fakeShadows{}
	tryWith(t, func(o *Options) { o.Shadows = shadows.on }, func(r *rig) {
		r.helped(shadows, "model")
		r.measured("g", "another")
		shadows.unwanted.Store(false)
		time.Sleep(time.Minute)
		if shadows.unwanted.Load() {
			t.Error("a function has shadows, and nothing is kept for the next one")
		}
		if err := r.Remove(t.Context(), full("f")); err != nil {
			t.Fatal(err)
		}
		r.until("stopped", func() bool { return len(r.backend.living()) == 0 && shadows.unwanted.Load() })
	})
}

// Instances start as bodies only if their own model can be divided, whatever others of the bundle can,
// and while a deployment is measured.
func TestOnlyDividedModelsHaveBodies(t *testing.T) {
	tryWith(t, func(o *Options) { o.Shadows = (&fakeShadows{}).on }, func(r *rig) {
		r.measured("f", "variants:python=80,model=70", withShadows, func(f *provider.Function) { f.Inference.Accuracy = 75 })
		r.answered("f", "python")
		if in := r.only(); in.Paired {
			t.Errorf("%+v started as a body", in.InstanceSpec)
		}
	})
	tryWith(t, func(o *Options) { o.Shadows = (&fakeShadows{}).on }, func(r *rig) {
		r.measured("f", "python", withShadows)
		r.answered("f", "python")
		r.deploy("f", "python", withShadows, func(f *provider.Function) { f.Inference.MaxBatch = 16 })
		r.backend.crash(r.only().ID, "killed")
		r.answered("f", "python")
		if in := r.only(); in.Paired {
			t.Errorf("%+v started as a body while the next deployment was measured", in.InstanceSpec)
		}
	})
}

// The parts of a model's shadows stay when variants are made of it, and those get theirs.
func TestVariantsAreDivided(t *testing.T) {
	shadows, g := &fakeShadows{}, &generator{}
	tryWith(t, func(o *Options) { o.Shadows, o.Bundles, o.Improver = shadows.on, g, g }, func(r *rig) {
		r.backend.widen(8000)
		r.helped(shadows, "precise", generates)
		parts := func(name string) []Division {
			r.mu.Lock()
			defer r.mu.Unlock()
			if a := r.functions[full("f")].artefact(name); a != nil {
				return a.divisions
			}
			return nil
		}
		time.Sleep(9 * time.Minute)
		for range 1500 { // Variants are served after ten minutes.
			time.Sleep(100 * time.Millisecond)
			if len(parts("precise")) == 0 {
				t.Fatal("the model lost its parts")
			}
		}
		if len(parts("slim")) == 0 {
			t.Error("the variant has no parts")
		}
	})
	if shadows.blocks != 2 {
		t.Errorf("blocks were found %d times, of two models", shadows.blocks)
	}
}

// Layers that could not be profiled are profiled again after a pause, unless the model cannot be divided.
func TestDividingAgain(t *testing.T) {
	shadows := &fakeShadows{fails: 3, why: errors.New("the profiler was killed")}
	tryWith(t, func(o *Options) { o.Shadows = shadows.on }, func(r *rig) {
		r.measured("f", "model", withShadows)
		plan := func() string { s, _ := r.Status(full("f")); return s.Plan }
		r.until("explained", func() bool {
			return strings.Contains(plan(), "no shadows yet, it is tried again: the profiler was killed")
		})
		time.Sleep(8 * time.Minute) // After 1, 2 and 4 minutes.
		if !strings.Contains(plan(), "one holds the blocks 0:1") {
			t.Errorf("shown as %s", plan())
		}
	})
	shadows = &fakeShadows{fails: 100, why: &shadow.UndividedError{Why: "its weights are packed"}}
	tryWith(t, func(o *Options) { o.Shadows = shadows.on }, func(r *rig) {
		r.measured("f", "model", withShadows)
		time.Sleep(time.Hour)
		if s, _ := r.Status(full("f")); !strings.Contains(s.Plan, "no shadows: the model cannot be divided: its weights are packed") {
			t.Errorf("shown as %s", s.Plan)
		}
	})
	if shadows.blocks != 1 {
		t.Errorf("the blocks were asked for %d times", shadows.blocks)
	}
}

// A function whose model cannot be divided serves, after a restart, too, and its description says why it has no
// shadows. It has some once the model can be divided.
func TestUndividedFunctionsComeBack(t *testing.T) {
	shadows := &fakeShadows{fails: 100, why: &shadow.UndividedError{Why: "its weights are packed"}}
	tryWith(t, func(o *Options) { o.Shadows = shadows.on }, func(r *rig) {
		r.measured("f", "model", withShadows, stays)
		r.answered("f", "model")
		explained := func() bool {
			s, _ := r.Status(full("f"))
			return strings.Contains(s.Plan, "no shadows: the model cannot be divided: its weights are packed")
		}
		r.until("explained", explained)
		r.end()
		r.open()
		r.deploy("f", "model", withShadows, stays, func(f *provider.Function) { f.Restored = true })
		r.run()
		r.answered("f", "model")
		r.until("explained", explained)
		shadows.mu.Lock()
		shadows.fails = 0
		shadows.mu.Unlock()
		r.end()
		r.open()
		r.run()
		r.deploy("new", "model", withShadows)
		r.until("divided", func() bool {
			s, _ := r.Status(full("new"))
			return strings.Contains(s.Plan, "one holds the blocks 0:1")
		})
	})
}

// A shadow that its body cannot use is replaced; one that helps stays.
func TestUselessShadowsAreReplaced(t *testing.T) {
	shadows := &fakeShadows{}
	tryWith(t, func(o *Options) { o.Shadows = shadows.on }, func(r *rig) {
		body, s := r.helped(shadows, "model")
		for range 10 {
			time.Sleep(time.Second)
			r.answered("f", "model")
		}
		if !r.lives(s.ID) {
			t.Fatal("a shadow that helps was stopped")
		}
		shadows.mu.Lock()
		shadows.useless = map[cluster.InstanceID]bool{s.ID: true}
		shadows.mu.Unlock()
		r.until("replaced", func() bool {
			return !r.lives(s.ID) && strings.Contains(shadows.last(), " f-") && !strings.Contains(shadows.last(), string(s.ID))
		})
		if !r.lives(body.ID) {
			t.Error("its body was stopped")
		}
	})
}

// A model that cannot have shadows serves without. A program without shadows refuses a deployment that asks for some.
func TestShadowsThatCannotBe(t *testing.T) {
	tryWith(t, func(o *Options) { o.Shadows = (&fakeShadows{}).on }, func(r *rig) {
		r.measured("f", "python", withShadows)
		r.answered("f", "python")
		r.until("explained", func() bool {
			s, _ := r.Status(full("f"))
			return strings.Contains(s.Plan, "no shadows: the model runs in Python")
		})
	})
	try(t, func(r *rig) {
		_, err := r.Deploy(t.Context(), r.function("f", "model", withShadows))
		if want := `com.openfaas.infer.shadow is "auto": this program has no shadows`; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("deployed in a program without shadows, or not for the reason: %v", err)
		}
		// One that was accepted before serves.
		r.deploy("f", "model", withShadows, func(f *provider.Function) { f.Restored = true })
		r.answered("f", "model")
		r.until("explained", func() bool {
			s, _ := r.Status(full("f"))
			return strings.Contains(s.Plan, "no shadows: this program has no shadows")
		})
	})
}

// The provider shows what bodies report of their shadows.
func TestMetricsOfShadows(t *testing.T) {
	shadows := &fakeShadows{counted: metrics.ShadowCounts{
		Rows: 12, Fallbacks: map[string]float64{"lost": 1}, Relay: metrics.Durations{Count: 4, Sum: 0.01, Buckets: map[float64]uint64{0.1: 4}},
	}}
	tryWith(t, func(o *Options) { o.Shadows = shadows.on }, func(r *rig) {
		body, s := r.helped(shadows, "model")
		r.until("shown", func() bool {
			return r.gauge("faas_infer_shadow_rows_total") == 12 && r.gauge("faas_infer_shadow_instances") == 1 && r.gauge("faas_infer_mapped_weights_bytes") == 101<<20
		})
		time.Sleep(5 * time.Second)
		if got := r.gauge("faas_infer_shadow_rows_total"); got != 12 {
			t.Errorf("%v rows of the same 12", got)
		}
		shadows.mu.Lock()
		shadows.counted.Rows = 15
		shadows.mu.Unlock()
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour { return behaviour{Refuse: errors.New("no")} })
		r.backend.crash(s.ID, "killed")
		r.until("alone", func() bool { return shadows.last() == string(body.ID)+":" })
		r.until("counted once more", func() bool {
			return r.gauge("faas_infer_shadow_rows_total") == 15 && r.gauge("faas_infer_shadow_instances") == 0
		})
	})
}

// The engine knows what a shadow and a whole instance really take: their own memory, their weights, and the
// time that each takes to load, measured where that is known.
func TestFootprints(t *testing.T) {
	tryWith(t, func(o *Options) { o.Shadows = (&fakeShadows{}).on }, func(r *rig) {
		r.measured("f", "model", withShadows)
		r.answered("f", "model")
		r.until("divided", func() bool {
			s, _ := r.Status(full("f"))
			return strings.Contains(s.Plan, "they start where that is the cheapest: a node's instances share the weights, so a shadow takes 1 MiB more and a whole instance 1")
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		fn := r.functions[full("f")]
		a := fn.artefacts[0]
		a.loading = 60 * time.Millisecond
		x := pairings(fn)[0]
		own := int64(1<<20 + x.Config.Batch*1000)
		whole, part := scaling.Footprint{Own: own, Weights: 101 << 20, Loading: 60 * time.Millisecond}, scaling.Footprint{Own: own, Weights: 1 << 20, Loading: 59 * time.Millisecond}
		if x.Whole != whole || x.Shadow != part {
			t.Errorf("a whole instance takes %+v and a shadow %+v", x.Whole, x.Shadow)
		}
		a.shadowLoading = 11 * time.Millisecond
		if x = pairings(fn)[0]; x.Shadow.Loading != a.shadowLoading {
			t.Errorf("a shadow loads in %v", x.Shadow.Loading)
		}
	})
}
