package batchmodel

import (
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/lab/figure"
	"github.com/faas-infer/faas-infer/papers/batch/arrival"
	"github.com/faas-infer/faas-infer/papers/batch/latency"
)

// Among is a case with a bounded number of instances behind the buffer.
type Among struct {
	Name             string
	Batch, Instances int
	Spread, Busy     float64
	// Computed and Played are the percentiles in s, by calculation and by simulation.
	Computed, Played [3]float64
	// Took is the fastest time of the calculation.
	Took time.Duration
}

// boundedCases have arrivals, batch size, number of instances, the part of the time in
// which these are busy, the spread of execution times, and the time of a batch of one and
// of each further request. Cases with bursty arrivals are less busy: otherwise a
// simulation of sixteen million requests is too inaccurate.
var boundedCases = []struct {
	arrivals        string
	batch, many     int
	busy, spread    float64
	perBatch, first float64
}{
	{"Poisson", 1, 1, 0.8, 0, 0, 1}, {"Poisson", 1, 10, 0.9, 0.1, 0, 1}, {"Poisson", 8, 3, 0.8, 0, 0.1, 1},
	{"Poisson", 8, 3, 0.8, 0.2, 1, 1}, {"Poisson", 16, 2, 0.7, 0.1, 0.2, 1},
	{"NYS-MAP7", 8, 4, 0.8, 0.1, 0.2, 1}, {"MMPP2(l=20,200 w=1,2)", 8, 3, 0.6, 0.1, 0.1, 1}, {"MMPP2(l=20,200 w=1,2)", 4, 10, 0.7, 0, 0.2, 1},
}

// boundedTimeout is how long a buffer's first request waits, in mean gaps for each place in
// a batch.
const boundedTimeout = 0.5

// boundedInstances computes and simulates the cases.
func boundedInstances() ([]Among, error) {
	var all []Among
	for _, c := range boundedCases {
		m, err := named(c.arrivals)
		if err != nil {
			return nil, err
		}
		b := latency.Buffer{Arrivals: m, Batch: c.batch, Timeout: boundedTimeout * float64(c.batch) / m.Rate()}
		for k := range c.batch {
			b.Service = append(b.Service, c.first+c.perBatch*float64(k))
		}
		if err := occupy(&b, c.busy*float64(c.many)); err != nil {
			return nil, err
		}
		one := Among{Name: c.arrivals, Batch: c.batch, Instances: c.many, Spread: c.spread, Busy: c.busy}
		r := latency.Reality{Instances: c.many, Spread: c.spread}
		played, err := b.Play(r)
		if err != nil {
			return nil, err
		}
		var d *latency.Distribution
		for n := range repeats {
			began := time.Now()
			if d, err = b.With(r); err != nil {
				return nil, err
			}
			if took := time.Since(began); n == 0 || took < one.Took {
				one.Took = took
			}
		}
		for i, q := range quantiles {
			one.Computed[i], one.Played[i] = d.Quantile(q), played.Quantile(q)
		}
		all = append(all, one)
	}
	return all, nil
}

// named returns one of the processes of BATCH's validation, otherwise a Poisson process of
// 100 requests/s.
func named(name string) (arrival.MAP, error) {
	for _, v := range publishedArrivals {
		if v.Arrival == name {
			return arrival.New(v.D0, v.D1)
		}
	}
	return arrival.Poisson(100), nil
}

// occupy scales the execution times such that busy instances are busy on average.
func occupy(b *latency.Buffer, busy float64) error {
	a, err := latency.NewAnalysis(b.Arrivals, b.Batch)
	if err != nil {
		return err
	}
	w, err := a.Waits(b.Batch, b.Timeout)
	if err != nil {
		return err
	}
	factor := busy / w.Busy(b.Arrivals.Rate(), b.Service)
	for k := range b.Service {
		b.Service[k] *= factor
	}
	return nil
}

// bounded adds the table and the figures of the cases with bounded instances.
func (o *Outcome) bounded(all []Among) {
	t := figure.Table{
		Title:  "Batches that wait for one of some instances: percentiles played, and by how many % those computed are off.",
		Header: []string{"arrivals", "B", "instances", "busy %", "spread", "p50 ms", "p95 ms", "p99 ms", "p50", "p95", "p99", "took ms"},
		Notes:  []string{"the play is of up to 16 million requests; where arrivals are bursty its own chance is 1 or 2 %."},
	}
	worst, where, slowest := 0.0, "", time.Duration(0)
	for _, a := range all {
		each, most := offBy(a.Computed, a.Played)
		name := fmt.Sprintf("%s, B = %d, %d instances, busy for %g %%", a.Name, a.Batch, a.Instances, 100*a.Busy)
		if most >= worst {
			worst, where = most, name
		}
		slowest = max(slowest, a.Took)
		row := []string{a.Name, fmt.Sprint(a.Batch), fmt.Sprint(a.Instances), number(100 * a.Busy), number(a.Spread)}
		for _, p := range a.Played {
			row = append(row, number(1e3*p))
		}
		t.Rows = append(t.Rows, append(append(row, signed(each)...), number(1e3*a.Took.Seconds())))
	}
	o.Tables = append(o.Tables, t)
	o.Report.Add("worst_pct.instances", worst, "%", "of p50, p95 and p99 with a bounded number of instances against a play; "+where)
	o.Report.Add("instances_ms", 1e3*slowest.Seconds(), "ms", "to compute one of them, the slowest case's fastest of "+fmt.Sprint(repeats))
}
