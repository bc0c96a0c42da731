package batchmodel

import (
	"fmt"
	"math"

	"github.com/faas-infer/faas-infer/lab/published"
	"github.com/faas-infer/faas-infer/papers/batch/latency"
)

// Compared is a vector with the percentiles of the two models.
type Compared struct {
	*Vector
	// Truth are the percentiles in s that the models are compared with. They are the
	// simulated ones; for BATCH's own evaluation, those of the exact model.
	Truth [3]float64
	// Exact and Published are the models' percentiles in s. Published are those of BATCH's
	// equations as printed, errors included ([published.Model]).
	Exact, Published [3]float64
	// Shown is set if BATCH's formula is meant to hold.
	Shown bool
}

// compare evaluates both models.
func compare(v *Vector) (*Compared, error) {
	b, err := v.Buffer()
	if err != nil {
		return nil, err
	}
	exact, err := b.Exact()
	if err != nil {
		return nil, fmt.Errorf("vector %s: the exact model: %w", v.Name, err)
	}
	analysis, err := latency.NewAnalysis(b.Arrivals, v.B)
	if err != nil {
		return nil, fmt.Errorf("vector %s: the published model: %w", v.Name, err)
	}
	printed, err := published.NewModel(b.Arrivals, analysis, v.B, v.T)
	if err != nil {
		return nil, fmt.Errorf("vector %s: the published model: %w", v.Name, err)
	}
	c := &Compared{Vector: v, Truth: v.percentiles(), Shown: v.Separate()}
	for i, q := range quantiles {
		c.Exact[i], c.Published[i] = exact.Quantile(q), printed.Quantile(b.Service, q)
	}
	return c, nil
}

// offBy returns by how many % values differ from the truth.
func offBy(values, truth [3]float64) (each [3]float64, worst float64) {
	for i, v := range values {
		each[i] = 100 * (v/truth[i] - 1)
		worst = max(worst, math.Abs(each[i]))
	}
	return each, worst
}
