// Package batchmodel compares the two models of a dispatching buffer's latency, that
// of BATCH (SC 2020, Eq. 4 to 16) and the exact one, with simulated percentiles and
// with a recording of real requests. The models are in batching's packages; this one only
// evaluates them. Begin with Run.
package batchmodel

import (
	"fmt"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/figure"
)

// Outcome is the result of a comparison.
type Outcome struct {
	Report *report.Report
	Tables []figure.Table
}

// Run compares the models with the percentiles of vectors, and does the fixed comparisons.
// command is the report's title.
func Run(command string, vectors []Vector) (*Outcome, error) {
	var all []*Compared
	for i := range vectors {
		c, err := compare(&vectors[i])
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	shown, err := comparePublished()
	if err != nil {
		return nil, err
	}
	fit, driven, err := azure()
	if err != nil {
		return nil, err
	}
	bounded, err := boundedInstances()
	if err != nil {
		return nil, err
	}
	took, median, slowest, err := timed(vectors)
	if err != nil {
		return nil, err
	}
	o := &Outcome{Report: report.New(command, time.Now())}
	o.vectors(all)
	o.shown(shown)
	o.asPrinted(shown, all)
	o.driven(fit, driven)
	o.bounded(bounded)
	o.Report.Add("eval_ms", took.Seconds()*1e3, "ms", fmt.Sprintf("the exact distribution of %s with its percentiles, the fastest of %d; their median is %.3g ms", slowest, repeats, median.Seconds()*1e3))
	return o, nil
}

// timedBatch is the largest batch size whose evaluation is timed. repeats is the number of
// evaluations.
const (
	timedBatch = 20
	repeats    = 31
)

// timed returns the fastest and the median time of one evaluation. The fastest counts
// because the machine may be busy. It times the vectors with the largest batch of at most
// 20, all if there are none, and returns the slowest of them.
func timed(vectors []Vector) (best, median time.Duration, name string, err error) {
	largest := 0
	for _, v := range vectors {
		if v.B <= timedBatch {
			largest = max(largest, v.B)
		}
	}
	for i := range vectors {
		v := &vectors[i]
		if v.B != largest && largest > 0 {
			continue
		}
		all, err := v.evaluations()
		if err != nil {
			return 0, 0, "", err
		}
		if all[0] > best {
			best, median, name = all[0], all[len(all)/2], fmt.Sprintf("%s (B = %d)", v.Name, v.B)
		}
	}
	return best, median, name, nil
}

// evaluations returns the times of repeated evaluations, ascending.
func (v *Vector) evaluations() ([]time.Duration, error) {
	b, err := v.Buffer()
	if err != nil {
		return nil, err
	}
	var all []time.Duration
	for range repeats {
		began := time.Now()
		d, err := b.Exact()
		if err != nil {
			return nil, err
		}
		for _, q := range quantiles {
			d.Quantile(q)
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return all, nil
}
