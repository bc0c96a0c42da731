package figure

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/scenario"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// peak is the highest load that a system bears.
type peak struct {
	scenario *scenario.Scenario
	system   systems.System
	// rps is the sum of all functions' rates. bound is the limit of any policy, own that
	// of the configs that this system considers.
	rps, bound, own float64
	// stress is the requests/s answered in time while the bound's load is offered
	// (INFless §5.2 runs “stress testing”).
	stress float64
	// lax is the highest load at which each function answers 97 % within its SLO, and
	// saturated the most requests/s that were answered, also late, at any load tried.
	lax, saturated float64
	// result is that of the run at the highest load, nil if the system bears no load.
	// span is the measured time of that run.
	result *sim.Result
	span   time.Duration
	// fails is the lowest load tried above the peak.
	fails fail
}

// fail is a load that the system does not bear. missed is the part of the worst function's
// requests that were not answered in time. function is "" if there is no such load.
type fail struct {
	load     float64
	function string
	missed   float64
}

// failed returns the fail for the result of a load.
func failed(load float64, r *sim.Result) fail {
	worst := slices.MaxFunc(r.Functions, func(a, b sim.FunctionResult) int { return cmp.Compare(a.Violations(), b.Violations()) })
	return fail{load, worst.Name, worst.Violations()}
}

// find searches the highest load of p's scenario with a precision of 0.5 %.
func (p *peak) find(ctx context.Context, o Options, part func(float64)) error {
	at := func(load float64) (sim.Setup, error) { return p.scenario.Setup(p.system, load, p.scenario.Seed) }
	s, err := at(1)
	if err != nil {
		return err
	}
	rates, err := limitRates(s)
	if err != nil {
		return err
	}
	bound, err := p.limit(rates)
	if err != nil {
		return err
	}
	own, err := limitOwn(s, multiplied(rates, bound))
	if err != nil {
		return err
	}
	own *= bound
	const trials = 22 // The usual number, for the progress.
	tried, highest := 0.0, 0.0
	var fails []fail
	worst := map[float64]float64{} // The part that the worst function missed, by load.
	try := func(ctx context.Context, load float64) (float64, error) {
		if missed, known := worst[load]; known {
			return missed, nil
		}
		s, err := at(load)
		if err != nil {
			return 0, err
		}
		s.Duration = min(s.Duration, s.Warmup+measuredTime(slices.Min(rates)*load))
		s.Progress = func(done float64) { part(min(0.99, (tried+done)/trials)) }
		r, err := o.run(ctx, s)
		if err != nil {
			return 0, err
		}
		span, t := s.Duration-s.Warmup, r.Totals()
		if tried++; tried == 1 { // The first trial is at the bound.
			p.stress = float64(t.Served-t.Missed) / span.Seconds()
		}
		p.saturated = max(p.saturated, float64(t.Served)/span.Seconds())
		f := failed(load, r)
		worst[load] = f.missed
		if !bears(f.missed, Attained) {
			fails = append(fails, f)
		} else if load > highest {
			highest, p.result, p.span = load, r, span
		}
		return f.missed, nil
	}
	search := func(attained float64) (float64, error) {
		return Highest(ctx, SearchOptions{Most: bound, Precision: 0.005, Least: 1e-3}, func(ctx context.Context, load float64) (bool, error) {
			missed, err := try(ctx, load)
			return bears(missed, attained), err
		})
	}
	load, err := search(Attained)
	if err == nil {
		p.lax, err = search(lax)
	}
	if err != nil {
		return fmt.Errorf("%s under %s: %w", p.scenario.Name, p.system.Name, err)
	}
	total := 0.0
	for _, r := range rates {
		total += r
	}
	p.rps, p.lax, p.bound, p.own = load*total, p.lax*total, bound*total, own*total
	for _, f := range fails {
		if f.load > load && (p.fails.function == "" || f.load < p.fails.load) {
			p.fails = f
		}
	}
	return nil
}

// measuredTime returns the maximum time to measure if the function with the fewest requests
// has rate requests/s. It is the time of 50,000 requests, which distinguish 99 % from
// 98.9 %, and at least 5 s, which also show a queue that grows slowly.
func measuredTime(rate float64) time.Duration {
	const requests = 50_000
	return max(5*time.Second, time.Duration(requests/rate*float64(time.Second)))
}

// lax is a part of the requests that is less strict than [Attained]: about what INFless answers
// within the SLO on average (§5.2: violations of at most 3.1 %).
const lax = 0.97

// bears reports whether each function answered the part attained of its requests in time, if the
// worst missed that part.
func bears(missed, attained float64) bool { return missed <= 1-attained }

// limit returns the limit of any policy, a factor on rates. It counts with the times of the
// models alone, which OpenFaaS+'s instances need not have ([baselines.Plain]).
func (p *peak) limit(rates []float64) (float64, error) {
	any, err := baselines.ByName(systems.Default)
	if err != nil {
		return 0, err
	}
	s, err := p.scenario.Setup(any, 1, p.scenario.Seed)
	if err != nil {
		return 0, err
	}
	return limitAny(s, rates)
}

// held returns the part of the cluster that instances held at the peak, and the part of the
// machines in use that no instance held, in %.
func (p *peak) held() (held, fragments float64) {
	if p.result == nil {
		return math.NaN(), math.NaN()
	}
	total := 0.0
	for _, n := range p.scenario.Cluster.Nodes() {
		total += weigh(n.Total, p.scenario.Beta)
	}
	return 100 * p.result.ResourceSeconds / p.span.Seconds() / total, p.result.FragmentPct
}

// use says how machines are used and requests executed. Unknown values are NaN.
type use struct {
	// cpu and gpu are the parts of the cluster in % that ready instances hold.
	cpu, gpu float64
	// batch is the mean batch size over requests. alone is the part in % of the requests
	// executed in batches of one, without that on instances without a GPU.
	batch, alone, without float64
}

// used returns the use of the machines at the peak.
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

// batched returns how the requests of functions were executed, without cpu and gpu.
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
