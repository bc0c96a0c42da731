package regression

import (
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/cop"
)

// fill completes the subjects' curves. If an operator lacks a setting, or a batch beyond
// the measured ones, fill derives the time from another setting. So measurements at a few
// batches are enough to show how settings differ. Between two batches measured in a
// setting, the line through them counts.
func fill(settings []setting, subjects []*subject) {
	t := newTransfers(settings, subjects)
	for _, s := range subjects {
		batches := s.batches()
		for i := range settings {
			s.curves = append(s.curves, s.complete(settings, i, batches, t))
		}
	}
}

// basis is the origin of a point: a time in a setting.
type basis struct {
	setting int
	time    float64
}

// complete is the curve of setting i.
func (s *subject) complete(settings []setting, i int, batches []int, t *transfers) curve {
	own := s.measured[i]
	var c curve
	last := basis{setting: i}
	for _, b := range batches {
		if at, found := own.find(b); found {
			c, last = append(c, own[at]), basis{setting: i}
			continue
		}
		if len(own) > 0 && own[0].batch < b && b < own[len(own)-1].batch {
			continue
		}
		e, from, ok := s.anywhere(settings, i, b, t)
		if !ok {
			continue
		}
		p := own.around(point{b, e})
		// It may fall with the batch only if the times that it comes from do.
		if k := len(c) - 1; k >= 0 && last.setting != i && (from.setting != last.setting || from.time >= last.time) {
			p.estimate = scaled(p.estimate, max(p.estimate.Median, c[k].estimate.Median))
		}
		c, last = append(c, p), from
	}
	return c
}

// anywhere is the time at a batch in setting i, derived from the nearest setting that has
// one.
func (s *subject) anywhere(settings []setting, i, batch int, t *transfers) (cop.Estimate, basis, bool) {
	for _, j := range nearest(settings, i) {
		if e, time, ok := s.from(settings, j, i, batch, t); ok {
			return e, basis{j, time}, true
		}
	}
	return cop.Estimate{}, basis{}, false
}

// around limits a point beyond the measured batches: it neither falls as the batch grows
// nor grows faster than the batch.
func (c curve) around(p point) point {
	if len(c) == 0 {
		return p
	}
	near := c[0]
	if p.batch > near.batch {
		near = c[len(c)-1]
	}
	t, ratio := near.estimate.Median, float64(p.batch)/float64(near.batch)
	p.estimate = scaled(p.estimate, max(min(p.estimate.Median, t*max(1, ratio)), t*min(1, ratio)))
	return p
}

// nearest sorts the other settings by their distance from setting i. The one that differs
// only in cold comes first, then those with other numbers of cores.
func nearest(settings []setting, i int) []int {
	var order []int
	distance := func(j int) float64 {
		d := 4 * math.Abs(math.Log2(float64(settings[i].millicores)/float64(settings[j].millicores)))
		if settings[i].cold != settings[j].cold {
			d++
		}
		return d
	}
	for j := range settings {
		if j != i {
			order = append(order, j)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if distance(a) < distance(b) {
			return -1
		}
		return 1
	})
	return order
}

// from is the time at a batch in setting i, derived from setting j, and the time in
// setting j. If the operator was measured in both settings at some batch, its own change
// counts. If it was measured in setting i at other batches only, from is false, because
// its own curve is better. Otherwise the change comes from operators of its kind. An
// operator without weights takes the same time warm and cold.
func (s *subject) from(settings []setting, j, i, batch int, t *transfers) (e cop.Estimate, time float64, ok bool) {
	at, found := s.measured[j].find(batch)
	if !found {
		return cop.Estimate{}, 0, false
	}
	e = s.measured[j][at].estimate
	time = e.Median
	if settings[j].millicores == settings[i].millicores && s.weights(batch) == 0 {
		return e, time, true
	}
	ch, own := s.changes(settings, j, i).at(batch)
	if !own {
		if len(s.measured[i]) > 0 {
			return cop.Estimate{}, 0, false
		}
		ch = t.change(s, j, i, batch, e)
	}
	e = ch.apply(e, s.weights(batch))
	sameCores := settings[j].millicores == settings[i].millicores
	switch moved := math.Abs(e.Median-time) / max(e.Median, time); {
	case own:
		e.Source = cop.Interpolated
	case !sameCores:
		e.Source, e.Margin = cop.Derived, 2*profiler.Margin
	case moved > profiler.Margin:
		e.Source, e.Margin = cop.Derived, profiler.Margin+moved
	default: // With few weights the change is within the margin.
	}
	return e, time, true
}
