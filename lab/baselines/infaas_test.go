package baselines

import (
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// oneConfig is a variant with one config.
type oneConfig struct {
	config cluster.Config
	exec   time.Duration
}

func (o oneConfig) Configs() []cluster.Config { return []cluster.Config{o.config} }
func (o oneConfig) Exec(_ cluster.Config, b int) (time.Duration, bool) {
	return o.exec, b <= o.config.Batch
}
func (o oneConfig) Spread() float64 { return 0 }

// table2 is INFaaS' Table 2: A costs 1 on CPUs, C 16 on a GPU.
func table2() *systems.Variants {
	return &systems.Variants{
		All: []systems.Variant{
			{Name: "A", Times: oneConfig{cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 1000}}, 200 * ms}, Loading: 900 * ms},
			{Name: "C", Times: oneConfig{cluster.Config{Batch: 12, Resources: cluster.Resources{GPU: 16}}, 15 * ms}, Loading: 2500 * ms},
		},
		Pinned: map[string]systems.Pin{SageMaker: {Variant: "C"}, Clipper: {Variant: "A", Instances: 2}},
	}
}

// pretence is a function of a system whose instances load between two polls.
type pretence struct {
	scaler systems.Scaler
	f      scaling.Function
	nodes  []cluster.Node
	now    time.Time
	number byte
}

func pretend(t *testing.T, name string, slo time.Duration) *pretence {
	s := system(t, name)
	f := systems.Function{Name: "f", SLO: slo, Variants: table2()}
	u := NewTuner(s, f, f.Variants.All[0].Times)
	list, revision := u.Candidates(time.Unix(1000, 0), 4)
	return &pretence{
		scaler: s.Scaler(), f: scaling.Function{Name: "f", Revision: revision, SLO: slo, Configs: list, Min: u.Instances()},
		nodes: []cluster.Node{
			{Name: "cpu", Total: cluster.Resources{CPU: 2000}, Free: cluster.Resources{CPU: 2000}},
			{Name: "gpu1", Total: cluster.Resources{GPU: 16}, Free: cluster.Resources{GPU: 16}},
			{Name: "gpu2", Total: cluster.Resources{GPU: 16}, Free: cluster.Resources{GPU: 16}},
		},
		now: time.Unix(1000, 0),
	}
}

// poll lets a second pass at a load, and carries out the plan. It returns the artefacts of the
// instances with their nodes.
func (p *pretence) poll(rate float64) []string {
	p.now = p.now.Add(time.Second)
	p.f.Rate = rate
	plan := p.scaler.Scale(p.now, []scaling.Function{p.f}, p.nodes)
	give := func(node string, r cluster.Resources) {
		for i := range p.nodes {
			if p.nodes[i].Name == node {
				p.nodes[i].Free = p.nodes[i].Free.Add(r)
			}
		}
	}
	for _, s := range plan.Stop {
		i := slices.IndexFunc(p.f.Instances, func(in scaling.Running) bool { return in.ID == s.ID })
		give(p.f.Instances[i].Node, p.f.Instances[i].Config.Resources)
		p.f.Instances = slices.Delete(p.f.Instances, i, i+1)
	}
	for _, s := range plan.Start {
		give(s.Node, cluster.Resources{}.Sub(s.Config.Resources))
		p.number++
		p.f.Instances = append(p.f.Instances, scaling.Running{
			ID: cluster.InstanceID('a' + p.number), Node: s.Node, Artefact: s.Artefact, Config: s.Config, Exec: s.Exec, State: cluster.Ready,
		})
	}
	var has []string
	for _, in := range p.f.Instances {
		has = append(has, in.Artefact+"@"+in.Node)
	}
	slices.Sort(has)
	return has
}

// polls polls some times and compares what runs after the last.
func (p *pretence) polls(t *testing.T, n int, rate float64, want ...string) {
	t.Helper()
	var got []string
	for range n {
		got = p.poll(rate)
	}
	if !slices.Equal(got, want) {
		t.Errorf("after %d s at %v/s: %q, want %q", n, rate, got, want)
	}
}

// INFaaS takes what loads soonest for a first request, upgrades under load, and downgrades.
func TestINFaaSUpgrades(t *testing.T) {
	for _, name := range []string{INFaaSName, INFaaSILP} {
		p := pretend(t, name, 300*ms)
		p.f.Waiting = 1
		p.polls(t, 1, 0, "A@cpu")
		p.f.Waiting = 0
		p.polls(t, 5, 4, "A@cpu")
		p.polls(t, 5, 100, "C@gpu1")
		p.polls(t, 9, 4, "A@cpu")
		p.polls(t, 9, 0)
	}
}

// An objective of 50 ms leaves only C. Where that is Interfered, another one is loaded elsewhere.
func TestINFaaSAvoidsInterference(t *testing.T) {
	p := pretend(t, INFaaSName, 50*ms)
	p.polls(t, 2, 4, "C@gpu1")
	for range 8 {
		in := &p.f.Instances[0]
		in.Busy, in.Profiled = in.Busy+2*time.Second, in.Profiled+time.Second
		p.poll(4)
	}
	p.polls(t, 1, 4, "C@gpu1", "C@gpu2")
}

// SM+ and Clipper+ have the variant that the developer chose. Clipper+ never changes.
func TestBaselinesOfINFaaS(t *testing.T) {
	p := pretend(t, SageMaker, 300*ms)
	p.polls(t, 5, 4, "C@gpu1")
	p.polls(t, 5, 1000, "C@gpu1", "C@gpu2")
	p = pretend(t, Clipper, 300*ms)
	p.polls(t, 5, 4, "A@cpu", "A@cpu")
	p.polls(t, 5, 1000, "A@cpu", "A@cpu")
	p.polls(t, 5, 0, "A@cpu", "A@cpu")
}

// Without a choice of the developer, it is the cheapest per request.
func TestUnpinned(t *testing.T) {
	s, f := system(t, SageMaker), systems.Function{SLO: 300 * ms, Variants: table2()}
	f.Variants.Pinned = nil
	if all := s.Candidates(f, 1, f.Variants.All[0].Times); len(all) != 1 || all[0].Artefact != "C" || all[0].Loading != 2500*ms {
		t.Errorf("%+v", all)
	}
}

// ours considers all variants, and instances of each.
func TestVariantsAreCandidates(t *testing.T) {
	s, f := system(t, systems.FaaSInfer), systems.Function{SLO: 300 * ms, Variants: table2()}
	all := s.Candidates(f, 1, f.Variants.All[0].Times)
	if len(all) != 2 || all[0].Artefact != "A" || all[1].Artefact != "C" || all[1].Config.Batch != 12 {
		t.Errorf("%+v", all)
	}
	if Colocates(s) || !Colocates(system(t, INFaaSName)) {
		t.Error("only INFaaS' systems have instances without shares of their own")
	}
}
