package scenario

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/lab/arrivals"
	"github.com/faas-infer/faas-infer/lab/fleet"
)

// recorded reads {file, column, step, group, peak with low, or scale}. Without a file, the arrivals follow
// the trace of the case.
func (r *reader) recorded(o *fleet.Object) pattern {
	inner, ok := o.Object("trace")
	if !ok {
		return pattern{}
	}
	var a pattern
	a.scaled.peak = inner.Number("peak", 1e-6, maxRate, 0)
	a.scaled.low = inner.Number("low", 0, maxRate, 0)
	a.scaled.scale = inner.Number("scale", 1e-6, 1e9, 0)
	file, name := inner.String("file"), inner.String("column")
	step, group := inner.Duration("step", time.Millisecond, maxStep, 0), inner.Int("group", 1, 1<<20, 1)
	inner.Done()
	switch {
	case inner.Has("peak") == inner.Has("scale"):
		inner.Fail("", "it must have either peak, the requests/s of its highest step, or scale, the factor on its counts")
		return pattern{}
	case a.scaled.peak == 0 && a.scaled.scale == 0:
		return pattern{}
	case inner.Has("low") && a.scaled.low >= a.scaled.peak:
		inner.Fail("low", "%v: it must be less than peak, as it is the requests/s of the lowest step", a.scaled.low)
		return pattern{}
	case file == "":
		if name != "" || step != 0 || group > 1 {
			inner.Fail("", "column, step and group need a file: remove them, or name a file")
		}
		return a
	}
	t := r.trace(inner, file, "")
	if t == nil {
		return pattern{}
	}
	if name == "" && len(t.Columns) == 1 {
		name = t.Columns[0].Name
	}
	columns := pick(inner, t, []string{name}, step)
	if len(columns) == 0 {
		return pattern{}
	}
	return a.of(o, columns[0].grouped(group))
}

// grouped returns the column with a number of lines added up to one each.
func (c column) grouped(n int) column {
	if n > 1 {
		var sums []float64
		for i, x := range c.Counts {
			if i%n == 0 {
				sums = append(sums, 0)
			}
			sums[len(sums)-1] += x
		}
		c.Counts, c.Times = sums, nil
	}
	return c
}

// between returns the column with its lowest and highest counts at these rates.
func (c column) between(low, peak float64) column {
	least, most := slices.Min(c.Counts), c.Max()
	counts := make([]float64, len(c.Counts))
	for i, x := range c.Counts {
		counts[i] = peak * c.step.Seconds()
		if most > least {
			counts[i] = (low + (peak-low)*(x-least)/(most-least)) * c.step.Seconds()
		}
	}
	c.Counts, c.Times = counts, nil
	return c
}

// of returns the arrivals of a trace's column.
func (a pattern) of(o *fleet.Object, c column) pattern {
	if a.scaled.low > 0 {
		c = c.between(a.scaled.low, a.scaled.peak)
	}
	scale := a.scaled.scale
	highest := c.Max() / c.step.Seconds()
	if a.scaled.peak > 0 {
		if highest <= 0 {
			o.Fail("", "column %s of the trace has no requests, and so no peak", c.Name)
			return pattern{}
		}
		scale = a.scaled.peak / highest
	}
	out := pattern{peak: highest * scale, length: time.Duration(len(c.Counts)) * c.step}
	out.make = func(load float64, seed uint64) (arrivals.Process, error) {
		if c.Times != nil && scale*load == 1 {
			return arrivals.Timestamps(c.Times)
		}
		return arrivals.Counts(c.Counts, c.step, scale*load, seed)
	}
	if a.times > 0 {
		return out.multiplied(a.times)
	}
	return out
}

// timestamps reads the file of a recording of single requests.
func (r *reader) timestamps(o *fleet.Object) pattern {
	t := r.trace(o, o.String("timestamps"), "")
	if t == nil {
		return pattern{}
	}
	c := t.Columns[0]
	if c.Times == nil {
		o.Fail("timestamps", "trace %s has counts, not times: use trace: {file: …, scale: 1}", t.Name)
		return pattern{}
	}
	var a pattern
	a.scaled.scale = 1
	return a.of(o, column{c, t.Step})
}
