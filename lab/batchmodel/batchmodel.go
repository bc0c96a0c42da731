// Package batchmodel compares the two models of a dispatching buffer's latency, that
// of BATCH (SC 2020, Eq. 4 to 16) and the exact one, with simulated percentiles, and
// with a recording of real requests.
package batchmodel

import (
	"fmt"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/figure"
)

// Outcome is what a comparison has shown.
type Outcome struct {
	Report *report.Report
	Tables []figure.Table
}

// Run compares the models with vectors.
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
	staffed, err := among()
	if err != nil {
		return nil, err
	}
	took, usual, slowest, err := timed(vectors)
	if err != nil {
		return nil, err
	}
	o := &Outcome{Report: report.New(command, time.Now())}
	o.vectors(all)
	o.shown(shown, all)
	o.driven(fit, driven)
	o.among(staffed)
	o.Report.Add("eval_ms", took.Seconds()*1e3, "ms", fmt.Sprintf("the exact distribution of %s with its percentiles, the fastest of %d; their median is %.3g ms", slowest, repeats, usual.Seconds()*1e3))
	return o, nil
}

// evaluated is the batch size at which an evaluation is timed, repeats how often.
const (
	evaluated = 20
	repeats   = 31
)

// timed is how long one evaluation takes at best, and usually, on a machine that may
// have other things to do: of those of the vectors' with batches of 20 the slowest;
// where there is none, of the largest batch.
func timed(vectors []Vector) (best, usual time.Duration, name string, err error) {
	largest := 0
	for _, v := range vectors {
		if v.B <= evaluated {
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
			best, usual, name = all[0], all[len(all)/2], fmt.Sprintf("%s (B = %d)", v.Name, v.B)
		}
	}
	return best, usual, name, nil
}

// evaluations times several, ascending.
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
