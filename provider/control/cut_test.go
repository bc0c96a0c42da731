package control

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// planner plans in half a minute how the model "slow", which takes a second, is cut into two
// instances that take 60 ms together, or fails.
type planner struct {
	mu sync.Mutex
	// large: the whole model does not fit into an instance.
	large   bool
	planned *Model
	fails   error
	took    time.Duration
}

func newPlanner() *planner {
	p := &planner{took: 30 * time.Second}
	plan := &cut.Plan{Model: "slow", Members: 2, Rounds: []cut.Round{{First: 0, End: 3, Cut: "2x1", On: []int{0, 1}}}}
	profile := &profiler.Profile{Model: plan.Hash(), Engine: "engine", Machine: "machine", Memory: 40 << 20, Parts: 2}
	for _, b := range []int{1, 2} {
		us := float64(60_000 * b)
		profile.Measurements = append(profile.Measurements, profiler.Measurement{Batch: b, Threads: 2, Median: us, P95: us, CPU: 2 * us, Predicted: true})
	}
	p.planned = &Model{Name: "parts-2", Of: "slow", File: "parts", Plan: plan, Profile: profile}
	return p
}

func (p *planner) Models(_ context.Context, f *provider.Function) (string, []Model, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Model
	if !p.large {
		all = append(all, Model{Name: cluster.Whole, Of: "slow", File: f.Deployment.Image})
	} else if f.Inference.Partition == "" {
		return "", nil, &annotation.Error{Key: "limits.memory", Value: "64Mi", Why: "the model has 70 MiB of weights; raise it"}
	}
	if f.Inference.Partition != "" && p.took == 0 {
		all = append(all, *p.planned)
	}
	return "bundle", all, nil
}

func (p *planner) register(ctx context.Context, _ *provider.Function) error {
	p.mu.Lock()
	took := p.took
	p.mu.Unlock()
	if !wait(ctx, took) {
		return ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fails == nil {
		p.took = 0
	}
	return p.fails
}

func tryPlanner(t *testing.T, p *planner, f func(r *rig)) {
	t.Helper()
	tryWith(t, func(o *Options) {
		o.Bundles, o.Register = p, p.register
		o.Cuttable = func(context.Context, *provider.Function) []Model { return []Model{*p.planned} }
	}, func(r *rig) {
		r.backend.widen(8000)
		f(r)
	})
}

func cutting(how string) func(*provider.Function) {
	return func(f *provider.Function) { f.Inference.Partition = how }
}

// A model that is too slow as a whole serves once its plan is known. Until then nothing says
// that it cannot be served.
func TestASlowModelIsCut(t *testing.T) {
	tryPlanner(t, newPlanner(), func(r *rig) {
		r.deploy("f", "slow", cutting("auto"))
		time.Sleep(20 * time.Second)
		if d := r.describe("f"); d.Problem != "" {
			t.Errorf("while it is planned: %s", d.Problem)
		}
		r.until("it serves", func() bool { return r.describe("f").Measured })
		r.answered("f", "parts")
		in := r.only()
		if in.Config.Parts != 2 || in.Config.CPU < 1000 || in.Artefact.Name != "parts-2" || !strings.Contains(in.Artefact.Plan, `"cut":"2x1"`) {
			t.Errorf("its instance is %+v", in.InstanceSpec)
		}
		s, _ := r.Status(full("f"))
		if !strings.Contains(s.Plan, "parts-2: 2 instances with 20 MiB each, layers 0–2 2x1 on 0 1, one request predicted ") {
			t.Errorf("its plan is %q", s.Plan)
		}
	})
}

// With a quick model as whole, auto takes what is cheaper and latency what is faster.
func TestLatencyTakesTheFastest(t *testing.T) {
	for how, want := range map[string]string{"auto": "quick", "latency": "quick"} {
		tryPlanner(t, newPlanner(), func(r *rig) {
			r.deploy("f", "quick", cutting(how))
			time.Sleep(2 * time.Minute)
			r.answered("f", want)
			if cpu := r.only().Config.CPU; how == "auto" && cpu >= 1000 || how == "latency" && cpu != 2000 {
				t.Errorf("%s has %dm", how, cpu)
			}
		})
	}
}

// A model that does not fit into an instance has no times before its plan is known.
func TestALargeModelIsCut(t *testing.T) {
	p := newPlanner()
	p.large = true
	tryPlanner(t, p, func(r *rig) {
		r.deploy("f", "slow", cutting("latency"))
		r.until("it serves", func() bool { return r.describe("f").Measured })
		r.answered("f", "parts")
		if _, measures := r.models.asked(); measures > 0 {
			t.Error("the whole model was measured")
		}
		_, err := r.Deploy(t.Context(), r.function("g", "slow"))
		if err == nil || !strings.Contains(err.Error(), "limits.memory") || !strings.Contains(err.Error(), "com.openfaas.infer.partition: auto would serve it with 2 instances of ") {
			t.Errorf("off: %v", err)
		}
	})
}

// A model that cannot be cut says why, and is tried again.
func TestAModelCannotBeCut(t *testing.T) {
	p := newPlanner()
	p.large, p.fails = true, errors.New("its plan needs nine instances")
	tryPlanner(t, p, func(r *rig) {
		r.deploy("f", "slow", cutting("auto"))
		r.until("it says why", func() bool { return strings.Contains(r.describe("f").Problem, "nine instances") })
		if _, err := r.invoke("f", "x"); err == nil || !strings.Contains(err.Error(), "nine instances") {
			t.Errorf("a request got %v", err)
		}
		p.mu.Lock()
		p.fails = nil
		p.mu.Unlock()
		time.Sleep(time.Minute)
		r.until("it serves", func() bool { return r.describe("f").Measured })
	})
}

// No way to cut the model is fast enough: the deployment is refused with the fastest.
func TestTooSlowHoweverItIsCut(t *testing.T) {
	p := newPlanner()
	p.large, p.took = true, 0
	tryPlanner(t, p, func(r *rig) {
		_, err := r.Deploy(t.Context(), r.function("f", "slow", cutting("auto"), func(f *provider.Function) { f.Inference.SLO = 50 * time.Millisecond }))
		if err == nil || !strings.Contains(err.Error(), "com.openfaas.slo.latency") {
			t.Errorf("%v", err)
		}
		t.Log(err)
	})
}
