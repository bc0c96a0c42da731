// Package promise measures how well a stated percentile is kept, and for how many cores. It simulates the
// scenarios of the attainment bench and further ones, in which a machine becomes slower or a prediction is
// wrong, with the provider's own engine, batching and learning. Beside them stand other ways to learn and a
// clairvoyant plan. It decides nothing for the provider. Begin with [Run]; scenario.go has the loads,
// learner.go how the provider learns.
package promise

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Bench are the options of the bench.
type Bench struct {
	// Requests is the least number of requests of a scenario, Least the least time that it takes.
	Requests int
	Least    time.Duration
	// Percentiles are the stated ones in %.
	Percentiles []float64
	// Only, if set, is a regular expression that selects scenarios by their names. Ways are those to
	// compare, all if there are none.
	Only string
	Ways []string
	Seed uint64
	// Log gets a line for each run. Progress, if set, is called with the number of finished runs.
	Log      io.Writer
	Progress func(done, total int)
}

// start is how long an instance takes to start.
const start = 300 * time.Millisecond

// way is one way to know how long batches take and for which load to plan.
type way struct {
	name, says string
	learn      func(l *learner, q float64)
}

// Ways lists the names of the ways and what they are.
func Ways() (rows [][2]string) {
	for _, w := range ways {
		rows = append(rows, [2]string{w.name, w.says})
	}
	return rows
}

// product is the way of the provider.
const product = "faas-infer"

var ways = []way{
	{"cop", "the prediction alone", func(l *learner, _ float64) { l.times = newAlone(l.profile) }},
	{"ewma", "exponentially weighted mean and deviation of measured over predicted times", func(l *learner, q float64) {
		l.times = newEWMA(l.profile, q)
	}},
	{"boosted", "gradient-boosted quantile of measured over predicted times", func(l *learner, q float64) {
		l.times = newBoosted(l.profile, q)
	}},
	{product, "the provider's: correction and steering", func(l *learner, q float64) {
		l.times, l.steers = correction.New(l.profile, q), true
	}},
}

// knowledge is how the clairvoyant way plans. It knows times, pace and load.
type knowledge struct {
	// by multiplies the load.
	by float64
	// quantile of the executions takes no longer than the times that it plans with.
	quantile float64
}

// way names it in errors.
func (k *knowledge) way() way {
	return way{name: fmt.Sprintf("clairvoyant × %.2f, quantile %g", k.by, k.quantile)}
}

// outcome is that of one run.
type outcome struct {
	functions []judged
	cores     float64
}

// kept is that of the function which is furthest below the percentile.
func (o *outcome) kept() float64 {
	least := 100.0
	for i := range o.functions {
		least = min(least, o.functions[i].kept())
	}
	return least
}

// run simulates a scenario with a way. k, if it is not nil, makes it clairvoyant.
func (b *Bench) run(ctx context.Context, s scenario, w way, percentile float64, k *knowledge) (*outcome, error) {
	system, err := baselines.ByName(systems.Default)
	if err != nil {
		return nil, err
	}
	cores := s.cores
	if cores == 0 {
		cores = plenty
	}
	peaks, sum := make([]float64, len(s.functions)), 0.0
	truths := make([]truth, len(s.functions))
	for i, f := range s.functions {
		if truths[i], err = newTruth(f); err != nil {
			return nil, err
		}
		if peaks[i] = s.rate; s.rate == 0 {
			peaks[i] = min(maxRate, f.Peak*truths[i].capacity(f.Objective()))
		}
		sum += peaks[i]
	}
	length := max(b.Least, time.Duration(float64(b.Requests)/(sum*s.mean())*1.02*float64(time.Second)))
	out := &outcome{functions: make([]judged, len(s.functions))}
	setup := sim.Setup{
		Nodes: []cluster.Node{{Name: "n", Total: cluster.Resources{CPU: 1000 * cores, Memory: 1 << 40}}}, System: system,
		Seed: b.Seed, Duration: length, Overhead: 200 * time.Microsecond, Told: k != nil, Beta: 1,
	}
	if k != nil {
		setup.System = system.With(func(s *scaling.Settings) { s.Stabilisation, s.Burst = 2*time.Second, 2*time.Second })
	}
	for i, f := range s.functions {
		t := truths[i]
		j := &out.functions[i]
		j.percentile = percentile
		margin := 0.0
		p := t.predicted(s.base, s.row, margin)
		l := newLearner(f.Objective(), percentile, system.Settings().Options, t, p, newAlone(p))
		random := rand.New(rand.NewPCG(b.Seed, uint64(i)))
		arrivals := &load{scenario: &s, peak: peaks[i], end: length, random: random, told: 1}
		fn := sim.Function{
			Function: systems.Function{Name: fmt.Sprint("f", i), SLO: f.Objective(), Percentile: percentile, MaxBatch: largest},
			Times:    listed{l.profile}, Truth: t, Arrivals: arrivals, Learner: l, Outcome: j.add, Start: start, MinInstances: 1,
		}
		if strings.HasPrefix(s.name, "on_off") || strings.HasPrefix(s.name, "from_0") {
			fn.MinInstances = 0
		}
		if s.pace != nil {
			fn.Pace = func(at time.Duration) float64 { return s.pace(at, length) }
		}
		if k != nil {
			arrivals.told, arrivals.early = k.by, 100*time.Millisecond
			fn.Start = time.Millisecond
			know(l, t, k.quantile, fn.Pace)
		} else {
			w.learn(l, percentile/100)
		}
		l.candidates = nil
		l.plan()
		setup.Functions = append(setup.Functions, fn)
	}
	r, err := sim.Run(ctx, setup)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", s.name, w.name, err)
	}
	out.cores = r.ResourceSeconds / length.Seconds()
	for i := range out.functions {
		out.functions[i].hasty = r.Functions[i].Hasty
		out.functions[i].violations()
	}
	return out, nil
}

// know makes a learner clairvoyant.
func know(l *learner, t truth, quantile float64, pace func(time.Duration) float64) {
	exact := t.predicted(1, 1, 1e-6)
	tail := t.tail(quantile)
	for i := range exact.Measurements {
		m := &exact.Measurements[i]
		m.Median, m.P95, m.CPU = tail*m.Median, tail*m.P95, tail*m.CPU
	}
	exact.Payloads = &profiler.Payloads{Binary: t.handling, JSON: t.handling}
	a := newAlone(exact)
	if pace != nil {
		a.known = func(now time.Time) float64 { return pace(sim.SinceStart(now)) }
	}
	l.profile, l.times = exact, a
}

// listed are a profile's configs, for the simulator. It implements [systems.Times].
type listed struct{ profile *profiler.Profile }

// Configs implements [systems.Times].
func (t listed) Configs() []cluster.Config { return nil }

// Exec implements [systems.Times].
func (t listed) Exec(c cluster.Config, b int) (time.Duration, bool) {
	return t.profile.ExecTime(b, profiler.Share{CPU: c.CPU})
}

// Spread implements [systems.Times].
func (t listed) Spread() float64 { return 0 }

// usual is the quantile of executions for which the provider plans.
const usual = 0.95

// clairvoyant searches the plan with the fewest cores that keeps the percentile, of those that know times and load. It
// tries the percentile and the usual quantile of the times, because the percentile's own may leave nothing in time: one
// execution in 1,000 takes twice as long. For each it searches the smallest multiple of the load. If no plan keeps the
// percentile, it returns the one that keeps most.
func (b *Bench) clairvoyant(ctx context.Context, s scenario, percentile float64) (best *outcome, err error) {
	better := func(o *outcome) bool {
		kept, was := o.kept() >= percentile, best != nil && best.kept() >= percentile
		switch {
		case best == nil, kept && !was:
			return true
		case kept:
			return o.cores < best.cores
		}
		return !was && o.kept() > best.kept()
	}
	for _, quantile := range slices.Compact([]float64{percentile / 100, usual}) {
		low, high := 0.5, 2.5
		for range 5 {
			k := &knowledge{by: math.Sqrt(low * high), quantile: quantile}
			o, err := b.run(ctx, s, k.way(), percentile, k)
			if err != nil {
				return nil, err
			}
			if better(o) {
				best = o
			}
			if o.kept() >= percentile {
				high = k.by
			} else {
				low = k.by
			}
		}
	}
	return best, nil
}

// result is that of all ways in one scenario with one percentile.
type result struct {
	scenario   string
	percentile float64
	known      *outcome
	ways       []*outcome
	err        error
}

// Run measures the selected scenarios.
func Run(ctx context.Context, b Bench) (*report.Report, error) {
	only, err := regexp.Compile(b.Only)
	if err != nil {
		return nil, fmt.Errorf("--only %q: %w", b.Only, err)
	}
	all := slices.DeleteFunc(scenarios(), func(s scenario) bool { return !only.MatchString(s.name) })
	if len(all) == 0 {
		return nil, fmt.Errorf("--only %q: no scenario matches", b.Only)
	}
	chosen, err := b.chosen()
	if err != nil {
		return nil, err
	}
	results := make([]result, len(all)*len(b.Percentiles))
	var done sync.WaitGroup
	var mu sync.Mutex
	finished := 0
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range results {
		done.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			s, percentile := all[i/len(b.Percentiles)], b.Percentiles[i%len(b.Percentiles)]
			results[i] = b.compare(ctx, s, percentile, chosen)
			mu.Lock()
			defer mu.Unlock()
			b.tell(&results[i], chosen)
			if finished++; b.Progress != nil {
				b.Progress(finished, len(results))
			}
		})
	}
	done.Wait()
	r := report.New("bench promise", time.Now())
	for i := range results {
		if results[i].err != nil {
			return nil, results[i].err
		}
		results[i].add(r, chosen)
	}
	totals(r, results, chosen)
	return r, nil
}

// chosen returns the ways to compare.
func (b *Bench) chosen() ([]way, error) {
	var out []way
	for _, name := range b.Ways {
		i := slices.IndexFunc(ways, func(w way) bool { return w.name == name })
		if i < 0 {
			return nil, fmt.Errorf("--way %q: there is no such way", name)
		}
		out = append(out, ways[i])
	}
	if len(out) == 0 {
		return ways, nil
	}
	return out, nil
}

// compare runs all ways.
func (b *Bench) compare(ctx context.Context, s scenario, percentile float64, chosen []way) (r result) {
	r.scenario, r.percentile = s.name, percentile
	if r.known, r.err = b.clairvoyant(ctx, s, percentile); r.err != nil {
		return r
	}
	for _, w := range chosen {
		o, err := b.run(ctx, s, w, percentile, nil)
		if err != nil {
			r.err = err
			return r
		}
		r.ways = append(r.ways, o)
	}
	return r
}
