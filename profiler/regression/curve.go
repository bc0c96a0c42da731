package regression

import (
	"cmp"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/cop"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// point is an operator's time at a batch.
type point struct {
	batch    int
	estimate cop.Estimate
}

// curve is one operator's time by batch in one setting, by ascending batch.
type curve []point

// find is the position of a batch, or where it would be.
func (c curve) find(batch int) (int, bool) {
	return slices.BinarySearchFunc(c, batch, func(p point, b int) int { return cmp.Compare(p.batch, b) })
}

// at is the estimate at a batch: what is in the curve, between two of its
// points on the line through them, and beyond them on the line through the last
// two, but with a time that neither falls as the batch grows nor grows faster
// than the batch. A curve of one point is bent like shape, the time by
// batch of a law that need not be in proportion; it may be nil.
func (c curve) at(batch int, shape func(batch int) float64) (cop.Estimate, bool) {
	if len(c) == 0 {
		return cop.Estimate{}, false
	}
	i, found := c.find(batch)
	switch {
	case found:
		return c[i].estimate, true
	case i > 0 && i < len(c):
		return between(c[i-1], c[i], batch), true
	default:
		return c.beyond(batch, shape), true
	}
}

// between is the line through two points.
func between(p, q point, batch int) cop.Estimate {
	part := float64(batch-p.batch) / float64(q.batch-p.batch)
	line := func(a, b float64) float64 { return a + part*(b-a) }
	return cop.Estimate{
		Median: line(p.estimate.Median, q.estimate.Median), P95: line(p.estimate.P95, q.estimate.P95), CPU: line(p.estimate.CPU, q.estimate.CPU),
		Margin: line(p.estimate.Margin, q.estimate.Margin),
		Source: max(cop.Interpolated, p.estimate.Source, q.estimate.Source),
	}
}

// beyond continues the curve on either side. Each doubling of the distance to
// the measured batches adds the paper's margin once more.
func (c curve) beyond(batch int, shape func(int) float64) cop.Estimate {
	near, next := c[0], c[min(1, len(c)-1)]
	if batch > near.batch {
		near, next = c[len(c)-1], c[max(0, len(c)-2)]
	}
	t, ratio := near.estimate.Median, float64(batch)/float64(near.batch)
	switch {
	case len(c) > 1:
		t += (next.estimate.Median - t) * float64(batch-near.batch) / float64(next.batch-near.batch)
	case shape != nil:
		if at := shape(near.batch); at > 0 {
			t *= shape(batch) / at
		}
	}
	t = min(max(t, near.estimate.Median*min(1, ratio)), near.estimate.Median*max(1, ratio))
	e := scaled(near.estimate, t)
	e.Source = max(cop.Interpolated, e.Source)
	e.Margin += profiler.Margin * math.Abs(math.Log2(ratio))
	return e
}

// scaled is e with another median; P95 and CPU time in proportion.
func scaled(e cop.Estimate, median float64) cop.Estimate {
	if e.Median > 0 {
		e.P95 *= median / e.Median
		e.CPU *= median / e.Median
	}
	e.Median = median
	return e
}

// setting is under what an operator was measured: whole cores, in millicores,
// and whether its weights came from memory.
type setting struct {
	millicores int
	cold       bool
}

// subject is one operator that was measured.
type subject struct {
	key, family string
	// features are its work by batch.
	features map[int]operator.Features
	// curves are in the order of Model.settings; measured is what was
	// measured of them, the rest was filled in.
	curves, measured []curve
	// parts are its times on shares that are not whole cores.
	parts map[part]cop.Estimate
}

// part is a share that is not a number of whole cores.
type part struct {
	setting
	batch int
}

// batches lists every batch that the operator was measured at, ascending.
func (s *subject) batches() []int {
	var all []int
	for _, c := range s.measured {
		for _, p := range c {
			all = append(all, p.batch)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// weights is how many bytes come from memory, and not from the cache, when the
// operator runs cold.
func (s *subject) weights(batch int) float64 { return float64(s.features[batch].WeightBytes) }
