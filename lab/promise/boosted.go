package promise

import (
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
)

const (
	// stages is the number of trees, each with one split, and rate the part of each that counts.
	stages, rate = 80, 0.2
	// kept is the number of executions that are learned from, and refit that of new ones before the next time.
	kept, refit = 1000, 200
	// leafs is the least number of executions in a leaf.
	leafs = 20
)

// features of an execution: the logarithm of its batch, the share in cores, and the mean logarithm of the
// ratios just before.
type features [3]float64

// stump is a tree with one split: values up to at of a feature are left.
type stump struct {
	feature     int
	at          float64
	left, right float64
}

func (s stump) of(x features) float64 {
	if x[s.feature] <= s.at {
		return s.left
	}
	return s.right
}

// ensemble predicts a quantile by gradient boosting (Friedman 2001, with the quantile's loss): each stump
// splits the signs of what the ones before are wrong by, and its leaves are the quantiles of that.
type ensemble struct {
	first  float64
	stumps []stump
}

func (e *ensemble) of(x features) float64 {
	sum := e.first
	for _, s := range e.stumps {
		sum += rate * s.of(x)
	}
	return sum
}

// boost fits an ensemble to the q-quantile of y at x.
func boost(x []features, y []float64, q float64) *ensemble {
	e := &ensemble{first: profiler.Quantile(slices.Clone(y), q)}
	left := make([]float64, len(y))
	for i := range y {
		left[i] = y[i] - e.first
	}
	cuts := cutsOf(x)
	for range stages {
		s, ok := split(x, left, cuts, q)
		if !ok {
			break
		}
		e.stumps = append(e.stumps, s)
		for i := range left {
			left[i] -= rate * s.of(x[i])
		}
	}
	return e
}

// cutsOf lists at which values each feature may be split.
func cutsOf(x []features) (cuts [len(features{})][]float64) {
	for f := range cuts {
		var values []float64
		for i := range x {
			values = append(values, x[i][f])
		}
		slices.Sort(values)
		for i := 1; i < 10; i++ {
			cuts[f] = append(cuts[f], values[len(values)*i/10])
		}
		cuts[f] = slices.Compact(cuts[f])
	}
	return cuts
}

// split finds the stump that separates best what is above from what is below the prediction.
func split(x []features, left []float64, cuts [len(features{})][]float64, q float64) (best stump, ok bool) {
	most := 0.0
	for f := range cuts {
		for _, at := range cuts[f] {
			var sum, n [2]float64
			for i := range x {
				side := 0
				if x[i][f] > at {
					side = 1
				}
				n[side]++
				if sum[side] -= 1 - q; left[i] > 0 {
					sum[side]++
				}
			}
			if min(n[0], n[1]) < leafs {
				continue
			}
			if gain := sum[0]*sum[0]/n[0] + sum[1]*sum[1]/n[1]; gain > most {
				most, best, ok = gain, stump{feature: f, at: at}, true
			}
		}
	}
	if !ok {
		return best, false
	}
	var sides [2][]float64
	for i := range x {
		side := 0
		if x[i][best.feature] > best.at {
			side = 1
		}
		sides[side] = append(sides[side], left[i])
	}
	best.left, best.right = profiler.Quantile(sides[0], q), profiler.Quantile(sides[1], q)
	return best, true
}

// boosted predicts the logarithm of measured over predicted time by an ensemble that is fitted again and again.
type boosted struct {
	prediction
	q      float64
	model  *ensemble
	x      []features
	y      []float64
	recent float64
	fresh  int
}

func newBoosted(p *profiler.Profile, quantile float64) *boosted {
	return &boosted{prediction: newPrediction(assumed(p)), q: quantile}
}

func (b *boosted) at(batch int, on profiler.Share) features {
	return features{math.Log2(float64(batch)), float64(on.CPU) / 1000, b.recent}
}

func (b *boosted) Observe(_ time.Time, seen []correction.Observation) {
	for _, o := range seen {
		predicted := b.all(o.Share)[o.Batch-1]
		y := math.Log(float64(o.Exec) / float64(predicted))
		b.x, b.y = append(b.x, b.at(o.Batch, o.Share)), append(b.y, y)
		b.recent += 0.05 * (y - b.recent)
		b.fresh++
	}
	if over := len(b.x) - kept; over > 0 {
		b.x, b.y = slices.Delete(b.x, 0, over), slices.Delete(b.y, 0, over)
	}
}

func (b *boosted) Update(time.Time) bool {
	if b.fresh >= refit || b.model == nil && b.fresh >= 2*leafs {
		b.model, b.fresh = boost(b.x, b.y, b.q), 0
	}
	return b.model != nil
}

func (b *boosted) Table(n int, on profiler.Share) []time.Duration {
	return b.times(n, on, func(batch int) float64 {
		if b.model == nil {
			return 1
		}
		return math.Exp(b.model.of(b.at(batch, on)))
	})
}
