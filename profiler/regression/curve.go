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

// curve has one operator's times in one setting, sorted by batch.
type curve []point

// find is the index of a batch, or the index at which to insert it.
func (c curve) find(batch int) (int, bool) {
	return slices.BinarySearchFunc(c, batch, func(p point, b int) int { return cmp.Compare(p.batch, b) })
}

// at is the estimate at a batch. A batch of the curve has its own estimate. Between two
// points the estimate is on the line through them, beyond them on the line through the
// last two. There the time neither falls as the batch grows nor grows faster than the
// batch. A curve of one point follows shape, the time by batch of a law, up to a factor.
// shape may be nil.
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

// between is the estimate on the line through two points.
func between(p, q point, batch int) cop.Estimate {
	part := float64(batch-p.batch) / float64(q.batch-p.batch)
	line := func(a, b float64) float64 { return a + part*(b-a) }
	return cop.Estimate{
		Median: line(p.estimate.Median, q.estimate.Median), P95: line(p.estimate.P95, q.estimate.P95), CPU: line(p.estimate.CPU, q.estimate.CPU),
		Margin: line(p.estimate.Margin, q.estimate.Margin),
		Source: max(cop.Interpolated, p.estimate.Source, q.estimate.Source),
	}
}

// beyond continues the curve on either side. Each factor of 2 beyond the measured batches
// adds the paper's margin once more.
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

// scaled is e with another median, and P95 and CPU time in proportion.
func scaled(e cop.Estimate, median float64) cop.Estimate {
	if e.Median > 0 {
		e.P95 *= median / e.Median
		e.CPU *= median / e.Median
	}
	e.Median = median
	return e
}

// setting is the condition of a measurement: whole cores, in millicores, and whether the
// weights came from memory.
type setting struct {
	millicores int
	cold       bool
}

// subject is one operator that was measured.
type subject struct {
	key, family string
	// features are its work by batch.
	features map[int]operator.Features
	// curves are in the order of Model.settings. measured has their measured points;
	// fill adds the others.
	curves, measured []curve
	// parts are its times on shares that are not whole cores.
	parts map[part]cop.Estimate
}

// part is a batch on a share that is not a number of whole cores.
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

// weights is the number of bytes that come from memory, and not from the cache, when the
// operator runs cold.
func (s *subject) weights(batch int) float64 { return float64(s.features[batch].WeightBytes) }
