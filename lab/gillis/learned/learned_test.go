package learned

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/faas-infer/faas-infer/papers/gillis/partition"
)

// chain is a model of equal layers. Groups of at most reach layers can be cut, with more
// work the longer they are.
type chain struct{ layers, reach int }

func (c chain) Layers() int { return c.layers }

func (c chain) Options(first, end int) []partition.Option {
	n := end - first
	ms, weights, size := 60*float64(n), int64(n)*40<<20, int64(200<<10)
	all := []partition.Option{{Name: "whole", Parts: []partition.Part{{Compute: ms, Weights: weights, In: size, Out: size}}}}
	if n > c.reach {
		return all
	}
	for _, k := range []int{2, 4} {
		o := partition.Option{Name: fmt.Sprint("1x", k)}
		for range k {
			o.Parts = append(o.Parts, partition.Part{
				Compute: ms / float64(k) * (1 + 0.03*float64(n*k)), Weights: weights, In: size / int64(k), Out: size / int64(k),
			})
		}
		all = append(all, o)
	}
	return all
}

func space(t testing.TB, m partition.Model, platform string, memory float64) *partition.Space {
	t.Helper()
	p, ok := partition.Named(platform)
	if !ok {
		t.Fatal(platform)
	}
	p.MemoryMiB = memory
	s, err := partition.NewSpace(m, p, partition.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Equation 4: B - C for a plan that keeps the SLO, what it is late by otherwise, and -B for
// one that exceeds the memory.
func TestRewardEquation4(t *testing.T) {
	s := space(t, chain{4, 4}, "knix", 100)
	slo := partition.SLO{Ms: 200}
	e := newEncoding(s, slo)
	a := &agent{encoding: e, random: rand.New(rand.NewPCG(1, 1)), budget: 2400}
	a.partitioner, a.placer = newNetwork(a.random, 6, len(e.names)+1), newNetwork(a.random, 7, 2)
	seen := map[string]bool{}
	for range 300 {
		ep := a.episode(a.policy())
		switch {
		case len(ep.plan.Rounds) == 0 || !s.Fits(&ep.plan):
			seen["memory"] = true
			if ep.reward != -2400 {
				t.Fatalf("out of memory: %g", ep.reward)
			}
		case ep.plan.Time.Mean > slo.Ms:
			seen["late"] = true
			if ep.reward != slo.Ms-ep.plan.Time.Mean {
				t.Fatalf("late: %g", ep.reward)
			}
		default:
			seen["met"] = true
			if ep.reward != 2400-ep.plan.Cost {
				t.Fatalf("met: %g", ep.reward)
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("only %v were drawn", seen)
	}
}

// The gradient is that of differences.
func TestGradient(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	n := newNetwork(r, 5, 3)
	input, rewards := []float64{0.3, 0, -1, 0.7, 1}, []float64{2, -1, 0.5}
	value := func() float64 {
		v := 0.0
		for k, p := range n.forward(input) {
			v += rewards[k] * math.Log(p)
		}
		return v
	}
	n.forward(input)
	n.reward(input, rewards)
	for i := range n.parameters {
		was := n.parameters[i]
		const d = 1e-6
		n.parameters[i] = was + d
		up := value()
		n.parameters[i] = was - d
		down := value()
		n.parameters[i] = was
		if want := (up - down) / (2 * d); math.Abs(n.gradient[i]-want) > 1e-5 {
			t.Fatalf("parameter %d: %g, want %g", i, n.gradient[i], want)
		}
	}
}

// A policy learns the action with the greatest reward.
func TestNetworkLearns(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	n := newNetwork(r, 4, 3)
	input := []float64{1, 0, 0.5, 0}
	for range 1500 {
		rewards := make([]float64, 3)
		for range batch {
			a := draw(r, n.forward(input))
			rewards[a] += []float64{1, 5, 2}[a] / batch
		}
		n.forward(input)
		n.reward(input, rewards)
		n.step()
	}
	if p := n.forward(input); p[1] < 0.9 {
		t.Errorf("probabilities %v", p)
	}
}

func TestProcessMeetsItsSamples(t *testing.T) {
	var points [][]int
	var values []float64
	for i := range 12 {
		points, values = append(points, []int{i, i * i % 7}), append(values, math.Sin(float64(i)))
	}
	p := fit(points, values)
	for i := range points {
		if mean, deviation := p.at(points[i]); math.Abs(mean-values[i]) > 0.01 || deviation > 0.05 {
			t.Errorf("at sample %d: %g ± %g, want %g", i, mean, deviation, values[i])
		}
	}
	if _, far := p.at([]int{500, 500}); math.Abs(far-math.Sqrt(p.amplitude)) > 1e-6 {
		t.Errorf("far away: ± %g, want the prior's %g", far, math.Sqrt(p.amplitude))
	}
	if got := improvement(0, 1); math.Abs(got-1/math.Sqrt(2*math.Pi)) > 1e-12 || improvement(2, 0) != 2 || improvement(-2, 0) != 0 {
		t.Errorf("the expected improvement at the mean is %g", got)
	}
}

// The learners never beat the exact plan, and the trained policy comes near it.
func TestLearnersAgainstExact(t *testing.T) {
	for _, memory := range []float64{1400, 200} {
		s := space(t, chain{6, 3}, "knix", memory)
		fastest, err := s.Fastest(0)
		if err != nil {
			t.Fatal(err)
		}
		slo := partition.SLO{Ms: 1.2 * fastest.Time.Mean}
		exact, err := s.Cheapest(slo)
		if err != nil {
			t.Fatal(err)
		}
		rl := Reinforce(s, slo, 1)
		if !rl.Met || rl.Plan.Cost > 1.5*exact.Cost {
			t.Errorf("%g MiB: RL: met %v at %g, exact %g", memory, rl.Met, rl.Plan.Cost, exact.Cost)
		}
		last, best := Bayes(s, slo, 1)
		for name, r := range map[string]Result{"RL": rl, "BO": last, "the best of BO": best} {
			if r.Met && (r.Plan.Cost < exact.Cost-1e-6 || r.Plan.Time.Mean > slo.Ms+1e-6) {
				t.Errorf("%g MiB: %s: %g ms at %g, exact %g", memory, name, r.Plan.Time.Mean, r.Plan.Cost, exact.Cost)
			}
			if len(r.Plan.Rounds) > 0 && !s.Fits(&r.Plan) || r.Plans == 0 {
				t.Errorf("%g MiB: %s does not fit", memory, name)
			}
		}
		if last.Met && best.Plan.Cost > last.Plan.Cost {
			t.Errorf("%g MiB: the best sample costs %g, the last %g", memory, best.Plan.Cost, last.Plan.Cost)
		}
	}
}

func TestSameSeedSamePlan(t *testing.T) {
	s := space(t, chain{5, 3}, "lambda", 300)
	slo := partition.SLO{Ms: 280, Percentile: 99}
	if a, b := reinforce(s, slo, 5, 20), reinforce(s, slo, 5, 20); !reflect.DeepEqual(a, b) {
		t.Error("two runs of RL differ")
	}
	a, a2 := Bayes(s, slo, 5)
	b, b2 := Bayes(s, slo, 5)
	if !reflect.DeepEqual(a, b) || !reflect.DeepEqual(a2, b2) {
		t.Error("two runs of BO differ")
	}
}

// All actions lead to groups that cover the layers, also where layers cannot be grouped.
func FuzzGroups(f *testing.F) {
	f.Add(uint64(1), 6, 2)
	f.Fuzz(func(t *testing.T, seed uint64, layers, reach int) {
		if layers < 1 || layers > 12 || reach < 1 {
			return
		}
		s := space(t, chain{layers, reach}, "knix", 10000)
		e := newEncoding(s, partition.SLO{Ms: 1})
		r := rand.New(rand.NewPCG(seed, 0))
		actions := make([]int, layers)
		for i := range actions {
			actions[i] = r.IntN(len(e.names) + 1)
		}
		at := 0
		for _, g := range e.groups(actions) {
			if g.first != at || g.end <= at || len(e.rounds(g)) == 0 {
				t.Fatalf("actions %v: group %+v after layer %d", actions, g, at)
			}
			at = g.end
		}
		if at != layers {
			t.Fatalf("actions %v end at layer %d", actions, at)
		}
	})
}
