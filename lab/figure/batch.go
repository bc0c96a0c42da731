package figure

import (
	"context"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/scenario"
	paper "github.com/faas-infer/faas-infer/papers/batch"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// tuning compares BATCH's buffer, which is tuned as the load changes, with the same as its
// authors run it, and with one call per request at the largest and at the cheapest size (BATCH
// Fig. 14 and 15). The platform is like Lambda: it has an instance for every batch at once.
func tuning(ctx context.Context, cases []*scenario.Scenario, o Options) (*Outcome, error) {
	var jobs []tuningJob
	for _, c := range cases {
		for _, f := range c.Functions {
			jobs = append(jobs, tuningJob{c, f})
		}
	}
	days := make([]*day, len(jobs))
	err := o.each(ctx, len(jobs), func(ctx context.Context, i int, part func(float64)) (err error) {
		if days[i], err = jobs[i].run(ctx, part); err != nil {
			return fmt.Errorf("%s of %s: %w", jobs[i].Function.Name, caseName(jobs[i].Scenario), err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := &Outcome{}
	for i, d := range days {
		name := jobs[i].Function.Name
		if len(cases) > 1 {
			name = caseName(jobs[i].Scenario) + "." + name
		}
		d.results(out, name)
		if o.Drawings {
			out.Drawings = append(out.Drawings, d.drawing(name))
		}
	}
	return out, nil
}

// tuningJob is one function of one case.
type tuningJob struct {
	*scenario.Scenario
	scenario.Function
}

// price returns the profile's prices, or the cluster's if the profile has none.
func (j tuningJob) price() systems.Pricing {
	if j.Function.Price != nil {
		return j.Function.Price
	}
	return paper.Cluster{Beta: j.Beta}
}

// buffers are the tuned buffers, by their names in tables.
var buffers = []struct{ name, system string }{{"BATCH", baselines.Batch}, {"BATCH as published", baselines.BatchPublished}}

// run simulates the function's day in each way.
func (j tuningJob) run(ctx context.Context, part func(float64)) (*day, error) {
	d := &day{SLO: j.SLO, quantile: j.Percentile / 100}
	if d.quantile == 0 {
		d.quantile = systems.DefaultPercentile / 100.
	}
	for i, of := range buffers {
		system, err := baselines.ByName(of.system)
		if err != nil {
			return nil, err
		}
		b, err := newBuffered(j, system)
		if err != nil {
			return nil, err
		}
		process, err := j.Function.Arrivals(1, j.Seed)
		if err != nil {
			return nil, err
		}
		err = b.run(ctx, process, j.Duration, func(x float64) { part((float64(i) + x) / float64(len(buffers))) })
		if err != nil {
			return nil, err
		}
		d.ways = append(d.ways, b.way(of.name))
	}
	for _, single := range []struct {
		name string
		less func(a, b alone) bool
	}{
		{"one-to-one, largest", func(a, b alone) bool { return a.memory > b.memory || a.memory == b.memory && a.cpu > b.cpu }},
		{"one-to-one, cheapest", func(a, b alone) bool { return a.cost < b.cost }},
	} {
		best, err := j.single(single.less)
		if err != nil {
			return nil, err
		}
		d.ways = append(d.ways, best.way(single.name, d.ways[0].hours))
	}
	return d, nil
}

// alone is one call per request on fixed resources.
type alone struct {
	config      cluster.Config
	memory, cpu int64
	exec        time.Duration
	cost        float64
}

// single returns the config for one call per request that is first in the order of less.
func (j tuningJob) single(less func(a, b alone) bool) (alone, error) {
	var best alone
	found := false
	for _, c := range j.Times.Configs() {
		exec, ok := j.Times.Exec(c, 1)
		if !ok {
			continue
		}
		p := j.price().Price(c.Resources)
		one := alone{c, c.Memory, int64(c.CPU), exec, p.PerSecond*exec.Seconds() + p.PerCall}
		if !found || less(one, best) {
			best, found = one, true
		}
	}
	if !found {
		return alone{}, fmt.Errorf("model %s has no time for a single request", j.Model)
	}
	return best, nil
}
