package sim

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// script is an engine with prepared plans. It returns each once, in the first pass at its
// time or later.
type script struct {
	plans []planned
	// looked are the functions of every pass by its time.
	looked map[time.Duration]scaling.Function
	nodes  map[time.Duration][]cluster.Node
}

type planned struct {
	at   time.Duration
	plan func(f scaling.Function) scaling.Plan
}

func (s *script) Scale(now time.Time, functions []scaling.Function, nodes []cluster.Node) scaling.Plan {
	at := SinceStart(now)
	if s.looked == nil {
		s.looked, s.nodes = map[time.Duration]scaling.Function{}, map[time.Duration][]cluster.Node{}
	}
	f := functions[0]
	f.Instances = append([]scaling.Running(nil), f.Instances...)
	s.looked[at], s.nodes[at] = f, append([]cluster.Node(nil), nodes...)
	if len(s.plans) == 0 || at < s.plans[0].at {
		return scaling.Plan{}
	}
	p := s.plans[0].plan(f)
	s.plans = s.plans[1:]
	return p
}

// scripted runs one function on one machine of one node with 4 cores and half a GPU. The
// function takes 10 ms for a batch of one and starts in two seconds.
func scripted(t *testing.T, s *script, arrivals ...time.Duration) (*Result, error) {
	t.Helper()
	return scriptedWith(t, s, func(*Setup) {}, arrivals...)
}

// scriptedWith is scripted with a changed setup.
func scriptedWith(t *testing.T, s *script, change func(*Setup), arrivals ...time.Duration) (*Result, error) {
	t.Helper()
	times := timed(arrivals)
	setup := Setup{
		Nodes: []cluster.Node{{Name: "n", Total: cluster.Resources{CPU: 4000, GPU: 50, Memory: 8 << 30}}}, System: system(t, systems.FaaSInfer),
		Functions: []Function{{Function: systems.Function{Name: "f", SLO: 100 * ms, MaxBatch: 4}, Times: flat{}, Arrivals: &times, Start: 2 * time.Second}},
		Duration:  20 * time.Second, Sample: time.Second,
	}
	change(&setup)
	if err := setup.fill(); err != nil {
		t.Fatal(err)
	}
	r, err := newRun(&setup)
	if err != nil {
		t.Fatal(err)
	}
	r.engine = s
	if err := r.loop(context.Background()); err != nil {
		return nil, err
	}
	return r.finish(), nil
}

// flat has times that do not depend on the share: 10 ms per batch.
type flat struct{}

func (flat) Configs() []cluster.Config { return []cluster.Config{half.Config} }

func (flat) Exec(cluster.Config, int) (time.Duration, bool) { return 10 * ms, true }

func (flat) Spread() float64 { return 0 }

// half is half of the node.
var half = scaling.Start{Function: "f", Node: "n", Revision: 1, Exec: 10 * ms, Config: cluster.Config{Batch: 4, Resources: cluster.Resources{CPU: 2000, GPU: 25}}}

func starts(n int) func(scaling.Function) scaling.Plan {
	return func(scaling.Function) (p scaling.Plan) {
		for range n {
			p.Start = append(p.Start, half)
		}
		return p
	}
}

// An instance holds its resources from its start on, serves two seconds later, and frees
// the resources when it has stopped.
func TestLifeOfAnInstance(t *testing.T) {
	s := &script{plans: []planned{
		{time.Second, starts(1)},
		{10 * time.Second, func(f scaling.Function) scaling.Plan {
			return scaling.Plan{Stop: []scaling.Stop{{Function: "f", ID: f.Instances[0].ID}}}
		}},
	}}
	r, err := scripted(t, s, 2*time.Second, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	f := r.Functions[0]
	if r.Starts != 1 || r.Stops != 1 || f.Requests != 2 || f.Served != 2 || f.Cold != 1 || f.Missed != 1 || r.PeakInstances != 1 {
		t.Errorf("%+v", f)
	}
	// β·2 + 25 = 26.2, from 1 s to 10 s; ready from 3 s on; 20 ms busy.
	weight := 26.2
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"resources", r.ResourceSeconds, 9 * weight}, {"busy", r.BusySeconds, 0.02 * weight}, {"idle", r.IdleSeconds, 6.98 * weight},
		{"instance", f.InstanceSeconds, 7}, {"idle instance", f.IdleInstanceSeconds, 6.98}, {"active", r.ActiveNodeSeconds, 9}, {"fragments", r.FragmentPct, 50},
		{"by config", f.Configs[0].InstanceSeconds, 7},
	} {
		if math.Abs(c.got-c.want) > 1e-6 {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
	if f.Configs[0].Requests != 2 || f.Configs[0].Config != half.Config || f.Configs[0].Starts != 1 {
		t.Errorf("configs %+v", f.Configs)
	}
	// The cold request waits from 2 s to 3 s, and the pass sees it.
	if got := s.looked[2*time.Second]; got.Waiting != 1 || got.Instances[0].State != cluster.Starting || !got.Instances[0].IdleSince.IsZero() {
		t.Errorf("at 2 s the engine is told %+v", got)
	}
	if got := s.nodes[2*time.Second][0].Free; got.CPU != 2000 || got.GPU != 25 {
		t.Errorf("at 2 s there is free %+v", got)
	}
	if got := s.looked[6*time.Second].Instances[0]; got.State != cluster.Ready || got.IdleSince != TimeAt(5010*ms) {
		t.Errorf("at 6 s the engine is told %+v", got)
	}
	want := []int{0, 1, 1, 1, 1}
	for i, x := range r.Series[:5] {
		if x.At != time.Duration(i)*time.Second || x.Functions[0].Instances != want[i] {
			t.Errorf("the series has %+v", x)
		}
	}
	if last := r.Series[5].Functions[0]; last.Held != weight || last.Ready != 1 || len(r.Series) != 21 {
		t.Errorf("the series has %+v at 5 s, and %d entries", last, len(r.Series))
	}
}

// A start that needs the resources of others waits until they have left, and holds nothing
// before.
func TestAStartAwaitsWhoLeaves(t *testing.T) {
	exchange := func(f scaling.Function) scaling.Plan {
		big := half
		big.Config.CPU, big.Config.GPU = 4000, 50
		p := scaling.Plan{}
		for _, in := range f.Instances {
			p.Stop = append(p.Stop, scaling.Stop{Function: "f", ID: in.ID})
			big.After = append(big.After, in.ID)
		}
		p.Start = append(p.Start, big)
		return p
	}
	s := &script{plans: []planned{{0, starts(2)}, {5 * time.Second, exchange}}}
	// A request that is executed at that moment keeps one of the two for 3 ms.
	r, err := scripted(t, s, 5*time.Second-7*ms)
	if err != nil {
		t.Fatal(err)
	}
	f := r.Functions[0]
	if f.Served != 1 || f.Missed != 0 || f.Cold != 0 {
		t.Errorf("%+v", f)
	}
	if want := 5*26.2 + 5.003*26.2 + (20-5.003)*52.4; math.Abs(r.ResourceSeconds-want) > 1e-6 {
		t.Errorf("%v resource-seconds, want %v", r.ResourceSeconds, want)
	}
}

func TestAPlanThatGivesTooMuchEndsTheRun(t *testing.T) {
	_, err := scripted(t, &script{plans: []planned{{0, starts(3)}}})
	if err == nil || !strings.Contains(err.Error(), "more than it has") {
		t.Errorf("three halves of a node: %v", err)
	}
	for name, wrong := range map[string]func(*scaling.Start){
		"no such function": func(s *scaling.Start) { s.Function = "g" },
		"or node":          func(s *scaling.Start) { s.Node = "x" },
	} {
		start := half
		wrong(&start)
		_, err := scripted(t, &script{plans: []planned{{0, func(scaling.Function) scaling.Plan { return scaling.Plan{Start: []scaling.Start{start}} }}}})
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A resized instance has its new times and its new share at once.
func TestResizing(t *testing.T) {
	resize := func(f scaling.Function) scaling.Plan {
		more := half.Config
		more.CPU = 4000
		return scaling.Plan{Resize: []scaling.Resize{{Function: "f", ID: f.Instances[0].ID, Config: more, Exec: 10 * ms}}}
	}
	r, err := scripted(t, &script{plans: []planned{{0, starts(1)}, {10 * time.Second, resize}}})
	if err != nil {
		t.Fatal(err)
	}
	if want := 10*26.2 + 10*27.4; math.Abs(r.ResourceSeconds-want) > 1e-6 || r.Resizes != 1 || len(r.Functions[0].Configs) != 2 {
		t.Errorf("%v resource-seconds, want %v; %d resizes", r.ResourceSeconds, want, r.Resizes)
	}
}

// A cold request causes a pass within the pause between two passes, not only at the next
// tick.
func TestAColdRequestWakesTheEngine(t *testing.T) {
	s := &script{plans: []planned{{10 * time.Second, starts(1)}}}
	at := 10*time.Second + 301*ms
	r, err := scripted(t, s, at)
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Functions[0]; f.Cold != 1 || f.Served != 1 {
		t.Errorf("%+v", f)
	}
	if _, ok := s.looked[at]; !ok {
		t.Error("there is no pass at the time of the request")
	}
	// Idle, the engine is asked once a second.
	if _, ok := s.looked[9*time.Second+500*ms]; ok {
		t.Error("an idle cluster is looked at more often than ten ticks apart")
	}
}

// Requests that no instance serves are rejected, also at the end.
func TestNothingIsForgotten(t *testing.T) {
	r, err := scripted(t, &script{}, 0, 19*time.Second+900*ms)
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Functions[0]; f.Requests != 2 || f.Rejected != 2 || f.Cold != 2 {
		t.Errorf("%+v", f)
	}
}
