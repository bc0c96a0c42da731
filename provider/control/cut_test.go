package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/scaling/capacity"
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
	// calls counts the calls of register that have not returned.
	calls int
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

func (p *planner) Wanted(f *provider.Function, bundle string) string {
	if f.Inference.Partition == "" {
		return ""
	}
	return fmt.Sprint(bundle, f.Inference.SLO, f.Inference.MaxBatch, f.Inference.PartitionInstances, f.Inference.Limits.Memory)
}

func (p *planner) Improve(ctx context.Context, _ *provider.Function) error {
	p.mu.Lock()
	took := p.took
	p.calls++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calls--
	}()
	if !backoff.Wait(ctx, took) {
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
		o.Bundles, o.Improver = p, p
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
		if s, _ := r.Status(full("f")); !strings.Contains(s.Plan, "being planned") {
			t.Errorf("while it is planned, its plan is %q", s.Plan)
		}
		if _, err := r.invoke("f", "x"); err == nil || !strings.Contains(err.Error(), "it is being planned how to cut the model") {
			t.Errorf("while it is planned, a request got %v", err)
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

// The parts of a plan may be damaged: they are looked at again after an early exit.
func TestPartsArePreparedAgain(t *testing.T) {
	p := newPlanner()
	p.large, p.took = true, 0
	tryPlanner(t, p, func(r *rig) {
		prepared := func() int {
			r.models.mu.Lock()
			defer r.models.mu.Unlock()
			return r.models.prepares
		}
		atStart := 0
		r.backend.becomes(func(n int, _ cluster.InstanceSpec) behaviour {
			if n == 0 {
				atStart = prepared()
			}
			if prepared() == atStart {
				return behaviour{ReadyAfter: -1, ExitAfter: 50 * time.Millisecond, ExitReason: "part 1 of round 1 is damaged"}
			}
			return behaviour{}
		})
		r.deploy("f", "slow", cutting("auto"))
		r.until("it serves", func() bool { return r.describe("f").Measured })
		r.answered("f", "parts")
		time.Sleep(time.Minute)
		if n := prepared(); n != atStart+1 {
			t.Errorf("parts were looked at %d times after one exit", n-atStart)
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
		if s, _ := r.Status(full("f")); s.Plan != "" {
			t.Errorf("its plan is %q", s.Plan)
		}
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

// The same is found only when the plan is made: then the function says so, with the fastest of all.
func TestTooSlowOnceItIsPlanned(t *testing.T) {
	tryPlanner(t, newPlanner(), func(r *rig) {
		r.deploy("f", "slow", cutting("auto"), func(f *provider.Function) { f.Inference.SLO = 50 * time.Millisecond })
		time.Sleep(time.Minute)
		if why := r.describe("f").Problem; !strings.HasPrefix(why, `com.openfaas.slo.latency is "50ms": no config meets the SLO of 50ms: the fastest, ⟨1,2000m,0%⟩, takes 66`) {
			t.Errorf("its problem is %q", why)
		}
		began := time.Now()
		if _, err := r.invoke("f", "x"); err == nil || !strings.Contains(err.Error(), "no config meets") || time.Since(began) > time.Second {
			t.Errorf("after %v a request got %v", time.Since(began), err)
		}
	})
}

// A deployment with other limits ends the planning for the earlier ones. One with the same goes on
// with it.
func TestOtherLimitsArePlannedAnew(t *testing.T) {
	p := newPlanner()
	tryPlanner(t, p, func(r *rig) {
		r.deploy("f", "slow", cutting("auto"))
		for _, step := range []struct {
			edit  func(*provider.Function)
			calls int
		}{
			{cutting("latency"), 2}, {func(f *provider.Function) { f.Inference.Partition, f.Inference.Limits.Memory = "latency", 1<<30 }, 1}, {nil, 0},
		} {
			time.Sleep(5 * time.Second)
			if step.edit != nil {
				r.deploy("f", "slow", step.edit)
			} else if err := r.Remove(t.Context(), full("f")); err != nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Second)
			p.mu.Lock()
			if p.calls != step.calls {
				t.Errorf("%d plans are being made, want %d", p.calls, step.calls)
			}
			p.mu.Unlock()
		}
	})
}

// Requests that ask for something else get it, and the quickest goes on to serve those that ask
// nothing.
func TestTheQuickestAndWhatRequestsAsk(t *testing.T) {
	tryWith(t, func(*Options) {}, func(r *rig) {
		r.backend.widen(8000)
		r.measured("any", twoVariants, cutting("latency"))
		r.measured("good", twoVariants, cutting("latency"), accurate(75))
		r.until("the quickest answers", func() bool {
			got, err := r.invoke("any", "x")
			return err == nil && got == "slim:x"
		})
		r.answered("good", "precise")
		ask := func(name, header, value, want string) {
			t.Helper()
			if got, err := r.asks(name, header, value); err != nil || string(got.Body) != want+":x" {
				t.Errorf("%s, asked for %s: %v, %v", name, value, got, err)
			}
		}
		ask("any", "Accuracy", "75", "precise")
		ask("good", "Model", "slim", "slim")
		for range 20 {
			time.Sleep(time.Second)
			if _, err := r.invoke("any", "x"); err != nil { // From either: both are there.
				t.Error(err)
			}
			if _, err := r.asks("good", "Accuracy", "60"); err != nil {
				t.Error(err)
			}
			r.answered("good", "precise")
		}
		for range 120 {
			time.Sleep(time.Second)
			if _, err := r.invoke("any", "x"); err != nil {
				t.Error(err)
			}
		}
		r.answered("any", "slim")
		ask("any", "Model", "precise", "precise")
	})
}

// The quickest starts with the share for which there is room. Until it is raised no second one takes
// the room for that.
func TestNoSecondOneWhileTheQuickestIsRaised(t *testing.T) {
	way := func(name string, cpu int, ms time.Duration) capacity.Candidate {
		return capacity.Candidate{Artefact: name, Exec: ms * time.Millisecond, Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: cpu}}}
	}
	all := []capacity.Candidate{way("parts-1", 1000, 1300), way("parts-2", 1000, 1600), way("parts-2", 2000, 800)}
	runs := func(name string, cpu int) *instance {
		in := &instance{function: &function{}}
		in.State, in.Node, in.Artefact.Name, in.Config.CPU = cluster.Ready, "a", name, cpu
		return in
	}
	now := time.Unix(1e9, 0)
	refused, apart, parked := runs("parts-2", 1000), runs("parts-2", 1000), runs("parts-2", 1000)
	refused.resizeAfter, apart.Config.Apart, parked.Parked, parked.away = now.Add(time.Second), true, true, true
	for _, x := range []struct {
		instances []*instance
		free      int
		want      []int // shares of parts-2
	}{
		{nil, 2000, []int{2000}},
		{[]*instance{refused}, 1000, []int{1000, 2000}},
		{[]*instance{refused, runs("parts-1", 1000)}, 0, []int{1000, 2000}},
		{[]*instance{apart, runs("parts-2", 1000)}, 0, []int{2000}}, // It makes room.
		{[]*instance{parked, runs("parts-2", 2000)}, 1000, []int{1000, 2000}},
		{[]*instance{runs("parts-1", 500), runs("parts-2", 1000)}, 0, []int{1000, 2000}}, // Not enough.
		{[]*instance{runs("parts-1", 1000)}, 1000, []int{1000, 2000}},
		{[]*instance{runs("parts-1", 1000), runs("parts-2", 1000)}, 0, []int{2000}},
		{[]*instance{runs("parts-2", 1000)}, 1000, []int{2000}},
		{[]*instance{runs("parts-2", 1000)}, 500, []int{1000, 2000}}, // Another function has the room.
		{[]*instance{runs("parts-2", 2000)}, 0, []int{2000}},
	} {
		nodes := []cluster.Node{{Name: "a", Total: cluster.Resources{CPU: 2000}, Free: cluster.Resources{CPU: x.free}}}
		var q quickest
		var got []int
		for _, c := range q.among(now, all, nodes, x.instances) {
			if c.Artefact != "parts-2" {
				t.Errorf("%s may start", c.Artefact)
			}
			got = append(got, c.Config.CPU)
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%d instances, %dm free: shares %v, want %v", len(x.instances), x.free, got, x.want)
		}
	}
}

// Of several instances on a node only as many get the share of the quickest as there is room for.
func TestRaisingTakesNoMoreThanIsFree(t *testing.T) {
	tryWith(t, func(*Options) {}, func(r *rig) {
		r.backend.widen(8000)
		r.measured("f", "a", func(f *provider.Function) {
			f.Inference.Requests.CPU, f.Inference.Limits.CPU, f.Inference.MinReplicas, f.Inference.MaxReplicas = 1000, 1000, 2, 2
			f.Replicas = 2
		})
		r.until("both are ready", func() bool { return r.describe("f").Ready == 2 })
		for total, want := range map[int]int{2500: 0, 3000: 1, 4000: 2} {
			r.mu.Lock()
			fn := r.functions[full("f")]
			fn.quick = quickest{cpu: 2000}
			nodes := []cluster.Node{{Name: fn.Sorted()[0].Node, Total: cluster.Resources{CPU: total, Memory: 1 << 40}}}
			r.driver.raiseAll(nodes)
			raised := 0
			for _, in := range fn.Sorted() {
				if in.Config.CPU == 2000 {
					raised++
				}
				in.Config.CPU, in.previousConfig, in.previousTable = 1000, nil, nil
			}
			if raised != want {
				t.Errorf("of %dm, %d get more, want %d", total, raised, want)
			}
			fn.quick = quickest{}
			r.mu.Unlock()
		}
	})
}

// A refusal for another reason than size and speed says nothing of cutting.
func TestCuttingMakesNothingMoreAccurate(t *testing.T) {
	tryPlanner(t, newPlanner(), func(r *rig) {
		_, err := r.Deploy(t.Context(), r.function("f", "slow", accurate(50)))
		if err == nil || !strings.Contains(err.Error(), "com.openfaas.slo.accuracy") || strings.Contains(err.Error(), "partition") {
			t.Errorf("%v", err)
		}
	})
}
