package figure

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/scenario"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// peak is the highest load that a system bears.
type peak struct {
	scenario *scenario.Scenario
	system   systems.System
	// rps is all functions' rates together, bound the limit for any policy, own
	// that of the configs which this one allows itself.
	rps, bound, own float64
	// stress is how many requests/s are answered in time while the bound's load is
	// offered (INFless §5.2 runs “stress testing”).
	stress float64
	// result is of the run at the highest load, span what it measured; nil if no
	// load was borne.
	result *sim.Result
	span   time.Duration
	// fails is the least load tried above the peak, which is not borne.
	fails fail
}

// fail is a load that is not borne: missed is the part of its requests that the worst
// function did not answer in time. Without a function there is none.
type fail struct {
	load     float64
	function string
	missed   float64
}

// failed is what a load's result shows that is not borne.
func failed(load float64, r *sim.Result) fail {
	worst := slices.MaxFunc(r.Functions, func(a, b sim.FunctionResult) int { return cmp.Compare(a.Violations(), b.Violations()) })
	return fail{load, worst.Name, worst.Violations()}
}

// find searches the highest load of p's scenario, to half a percent.
func (p *peak) find(ctx context.Context, o Options, part func(float64)) error {
	at := func(load float64) (sim.Setup, error) { return p.scenario.Setup(p.system, load, p.scenario.Seed) }
	s, err := at(1)
	if err != nil {
		return err
	}
	rates, err := LimitRates(s)
	if err != nil {
		return err
	}
	most, err := LimitAny(s, rates)
	if err != nil {
		return err
	}
	own, err := LimitOwn(s, Multiplied(rates, most))
	if err != nil {
		return err
	}
	own *= most
	const trials = 18 // about
	tried, highest := 0.0, 0.0
	var fails []fail
	load, err := Highest(ctx, SearchOptions{Most: most, Precision: 0.005, Least: 1e-3}, func(ctx context.Context, load float64) (bool, error) {
		s, err := at(load)
		if err != nil {
			return false, err
		}
		s.Duration = min(s.Duration, s.Warmup+enough(slices.Min(rates)*load))
		s.Progress = func(done float64) { part(min(0.99, (tried+done)/trials)) }
		r, err := o.run(ctx, s)
		if err != nil {
			return false, err
		}
		span := s.Duration - s.Warmup
		if tried++; tried == 1 { // at the bound
			t := r.Totals()
			p.stress = float64(t.Served-t.Missed) / span.Seconds()
		}
		if !bears(r) {
			fails = append(fails, failed(load, r))
			return false, nil
		}
		if load > highest {
			highest, p.result, p.span = load, r, span
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%s under %s: %w", p.scenario.Name, p.system.Name, err)
	}
	total := 0.0
	for _, r := range rates {
		total += r
	}
	p.rps, p.bound, p.own = load*total, most*total, own*total
	for _, f := range fails {
		if f.load > load && (p.fails.function == "" || f.load < p.fails.load) {
			p.fails = f
		}
	}
	return nil
}

// enough is how long to measure at most where the function with the fewest requests
// has rate requests/s: 50,000 of them tell 99 % from 98.9 %, but no less than 5 s,
// in which also a queue that grows slowly is seen.
func enough(rate float64) time.Duration {
	const requests = 50_000
	return max(5*time.Second, time.Duration(requests/rate*float64(time.Second)))
}

// bears reports whether each function answered 99 % of its requests in time.
func bears(r *sim.Result) bool {
	return !slices.ContainsFunc(r.Functions, func(f sim.FunctionResult) bool { return f.Violations() > 1-Attained })
}

// held is what part of the cluster instances held at the peak, and what part of the
// machines in use nobody had, in %.
func (p *peak) held() (held, fragments float64) {
	if p.result == nil {
		return math.NaN(), math.NaN()
	}
	total := 0.0
	for _, n := range p.scenario.Cluster.Nodes() {
		total += Weigh(n.Total, p.scenario.Beta)
	}
	return 100 * p.result.ResourceSeconds / p.span.Seconds() / total, p.result.FragmentPct
}

// use is how machines are used and requests executed, in %; NaN where nothing is
// known.
type use struct {
	// cpu and gpu are what ready instances hold of the cluster.
	cpu, gpu float64
	// batch is the mean batch size of a request's batch; alone are the requests
	// executed in batches of one, without those on instances without a GPU.
	batch, alone, without float64
}

// used is how the machines are used at the peak.
func (p *peak) used() use {
	if p.result == nil {
		return use{math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN()}
	}
	var total cluster.Resources
	for _, n := range p.scenario.Cluster.Nodes() {
		total = total.Add(n.Total)
	}
	u := batched(p.result.Functions...)
	cpu, gpu := 0.0, 0.0
	for _, f := range p.result.Functions {
		for _, c := range f.Configs {
			cpu += float64(c.Config.CPU) * c.InstanceSeconds / p.span.Seconds()
			gpu += float64(c.Config.GPU) * c.InstanceSeconds / p.span.Seconds()
		}
	}
	u.cpu, u.gpu = percent(cpu, float64(total.CPU)), percent(gpu, float64(total.GPU))
	return u
}

// batched is how functions' requests were executed.
func batched(functions ...sim.FunctionResult) use {
	var requests, alone, weighted, with, all float64
	for _, f := range functions {
		for b, n := range f.Batches {
			requests += float64(b) * float64(n)
			weighted += float64(b) * float64(b) * float64(n)
			if b == 1 {
				alone += float64(n)
			}
		}
		for _, c := range f.Configs {
			all += float64(c.Requests)
			if c.Config.GPU > 0 {
				with += float64(c.Requests)
			}
		}
	}
	u := use{cpu: math.NaN(), gpu: math.NaN(), batch: math.NaN(), alone: math.NaN(), without: math.NaN()}
	if requests > 0 {
		u.batch, u.alone = weighted/requests, percent(alone, requests)
	}
	if all > 0 {
		u.without = percent(all-with, all)
	}
	return u
}
