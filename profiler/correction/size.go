package correction

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
)

const (
	// sizeWindow is the number of executions after which 1/e of the weight of a size is left.
	sizeWindow = 300
	// smaller is how long requests must be smaller than planned before the plan follows them. It
	// follows larger ones at once, since those are late otherwise.
	smaller = time.Minute
	// fewLate and partLate bound the executions that the plan passes over because they are late in any case, in number
	// and as a part of all. With more of them the plan follows, and says that no config meets the objective.
	fewLate, partLate = 5.0, 0.05
	// largestElements is the maximum of a valid size.
	largestElements = 1 << 40
)

// sizes learns how large the rows of a function's requests are.
type sizes struct {
	// weights are those of the executions by class of their size ([profiler.Sizes.Class]).
	weights map[int64]float64
	// planned is the size of the corrected times in elements of a row, 0 for the profile's own.
	// below is since when a smaller one would do, zero if none does.
	planned int64
	below   time.Time
}

// observe adds an execution.
func (s *sizes) observe(class int64) {
	if s.weights == nil {
		s.weights = map[int64]float64{}
	}
	for of := range s.weights {
		s.weights[of] *= 1 - 1.0/sizeWindow
	}
	s.weights[class]++
}

// wanted is the class that the given part of the executions does not exceed, 0 without any. It passes over few that are
// late in any case: a plan for them does not help them, and harms the others.
func (s *sizes) wanted(quantile float64, late func(class int64) bool) (class int64) {
	total, tooLong := 0.0, 0.0
	for of, w := range s.weights {
		if total += w; late(of) {
			tooLong += w
		}
	}
	few := tooLong < max(fewLate, partLate*total)
	if few {
		total -= tooLong
	}
	sum := 0.0
	for _, of := range slices.Sorted(maps.Keys(s.weights)) {
		if few && late(of) {
			break // So are all larger ones.
		}
		if class, sum = of, sum+s.weights[of]; sum >= quantile*total {
			break
		}
	}
	return class
}

// resize plans with the size that is seen, and reports whether that is another one.
func (c *Correction) resize() (changed bool) {
	by := c.base.BySize
	if by == nil || len(c.seen.weights) == 0 {
		return false
	}
	exec, _ := c.ExecTime(1, c.widest)
	tooLong := func(elements int64) bool {
		return c.limit > 0 && float64(exec)*c.base.SizeFactor(1, c.seen.planned, elements) > float64(c.limit)
	}
	now, want := cmp.Or(c.seen.planned, by.Elements), c.seen.wanted(c.quantile, tooLong)
	switch {
	case want == now || want == 0:
		c.seen.below = time.Time{}
		return false
	case want < now && c.seen.below.IsZero():
		c.seen.below = c.now
		return false
	case want < now && c.now.Sub(c.seen.below) < smaller:
		return false
	}
	c.seen.below = time.Time{}
	c.setSize(want)
	return true
}

// setSize makes the prediction that of rows with so many elements. The evidence stays, because it
// is relative to the prediction of each batch's own size.
func (c *Correction) setSize(elements int64) {
	c.seen.planned = elements
	p := *c.base.Sized(elements)
	p.Beside = c.bare.Beside
	c.bare = bare(&p)
	p.Beside = c.profile.Beside
	c.profile = &p
	for _, s := range c.shares {
		s.predicted, s.cautious = c.bare.Table(len(s.predicted), s.Share), p.Table(len(s.cautious), s.Share)
	}
}

// Normal is the time that a batch would have taken with rows of the size for which the times are
// corrected.
func (c *Correction) Normal(o Observation) time.Duration {
	return max(1, time.Duration(float64(o.Exec)*c.base.SizeFactor(o.Batch, o.Elements, c.seen.planned)))
}

// Sizes says how the times of a [Correction] change with the size of the rows. The zero value says that
// they do not.
type Sizes struct {
	profile *profiler.Profile
	planned int64
}

// Sizes are those of the present corrected times.
func (c *Correction) Sizes() Sizes {
	if c.base.BySize == nil {
		return Sizes{}
	}
	return Sizes{c.base, c.seen.planned}
}

// Longest is the largest size of which the times are known, in elements of a row, 0 without any.
func (s Sizes) Longest() int64 {
	if s.profile == nil || len(s.profile.BySize.Times) == 0 {
		return 0
	}
	return s.profile.BySize.Times[len(s.profile.BySize.Times)-1].Elements
}

// Factor is by how much a batch whose rows have so many elements takes longer than the corrected times
// say.
func (s Sizes) Factor(batch int, elements int64) float64 {
	if s.profile == nil {
		return 1
	}
	return s.profile.SizeFactor(batch, s.planned, elements)
}

// Larger reports the length for which the times are corrected, and its unit, if requests are
// longer than the profile's.
func (c *Correction) Larger() (length int64, unit string, ok bool) {
	by := c.base.BySize
	if by == nil || c.seen.planned <= by.Elements {
		return 0, "", false
	}
	return by.LengthOf(c.seen.planned), by.Unit, true
}

// classOfSize is the class of an execution's size, 0 if it is not known.
func classOfSize(by *profiler.Sizes, elements int64) int64 {
	if by == nil || elements <= 0 {
		return 0
	}
	return by.Class(elements)
}
