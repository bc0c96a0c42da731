package profiler

import (
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// Sizes says how the times of a profile change with the size of a request's rows: the number of
// tokens of a text, or another length that is free in the model.
type Sizes struct {
	// Unit names what a length counts: "tokens", or "steps" of anything else.
	Unit string `json:"unit"`
	// Length and Elements are those of the measurements: the free length, and the number of
	// elements of one row's inputs together.
	Length   int64 `json:"length"`
	Elements int64 `json:"elements"`
	// Times are the other sizes, ascending.
	Times []SizeTime `json:"times"`
}

// SizeTime says how long batches take whose rows have one size.
type SizeTime struct {
	// Length and Elements are the size, as in [Sizes].
	Length   int64 `json:"length"`
	Elements int64 `json:"elements"`
	// Factors multiply the profile's times of batches of 1, 2, 3–4, 5–8, … rows; the last holds for
	// all larger ones.
	Factors []float64 `json:"factors"`
}

// maxSizeFactor is the largest valid factor: 100,000 tokens against 16.
const maxSizeFactor = 1e8

// wrong is what cannot be right of the sizes, "" if nothing is.
func (s *Sizes) wrong() string {
	last := SizeTime{}
	for _, t := range s.Times {
		if t.Length <= last.Length || t.Elements <= last.Elements || len(t.Factors) == 0 {
			return fmt.Sprintf("the size %d after %d has no times or is out of order", t.Length, last.Length)
		}
		for _, f := range t.Factors {
			if !(f > 0 && f <= maxSizeFactor) {
				return fmt.Sprintf("the size %d has a factor of %v", t.Length, f)
			}
		}
		last = t
	}
	if len(s.Times) == 0 || s.Length < 1 || s.Elements < 1 {
		return "the sizes are empty"
	}
	return ""
}

// of is the factor of a batch.
func (t SizeTime) of(batch int) float64 {
	return t.Factors[min(bits.Len(uint(batch-1)), len(t.Factors)-1)]
}

// factor is by how much a batch whose rows have so many elements takes longer than in the
// profile: on the curve between the two nearest sizes. Below the smallest size it is that one's.
// Above the largest it goes on as between the last two, and at least in proportion.
func (s *Sizes) factor(batch int, elements int64) float64 {
	at := slices.IndexFunc(s.Times, func(t SizeTime) bool { return t.Elements >= elements })
	last := len(s.Times) - 1
	switch {
	case at == 0:
		return s.Times[0].of(batch)
	case at > 0:
		return s.curve(at, batch, elements)
	case last == 0:
		return s.Times[0].of(batch) * float64(elements) / float64(s.Times[0].Elements)
	}
	return max(s.curve(last, batch, elements), s.Times[last].of(batch)*float64(elements)/float64(s.Times[last].Elements))
}

// curve is the factor on a parabola through two neighbours, of which at is the larger. Attention takes a time that grows
// with the square of a length, so the line between two lengths is above what is between them. The parabola is bent as the
// one through three neighbours, on the side where that is bent less, and never falls between the two: times are measured
// with errors.
func (s *Sizes) curve(at, batch int, elements int64) float64 {
	a, b := s.Times[at-1], s.Times[at]
	x, from, to := float64(elements), float64(a.Elements), float64(b.Elements)
	slope := (b.of(batch) - a.of(batch)) / (to - from)
	bend := slope / (to - from)
	for _, middle := range []int{at - 1, at} {
		if middle >= 1 && middle+1 < len(s.Times) {
			bend = min(bend, s.bend(middle, batch))
		}
	}
	if len(s.Times) == 2 {
		bend = 0
	}
	return a.of(batch) + slope*(x-from) + max(0, bend)*(x-from)*(x-to)
}

// bend is the coefficient of the square in the parabola through a size and its two neighbours.
func (s *Sizes) bend(middle, batch int) float64 {
	slope := func(a, b SizeTime) float64 { return (b.of(batch) - a.of(batch)) / float64(b.Elements-a.Elements) }
	a, b, c := s.Times[middle-1], s.Times[middle], s.Times[middle+1]
	return (slope(b, c) - slope(a, b)) / float64(c.Elements-a.Elements)
}

// ElementsOf is the number of elements of a row with a length, on the line through the sizes.
func (s *Sizes) ElementsOf(length int64) int64 {
	return s.convert(length, func(t SizeTime) int64 { return t.Length }, func(t SizeTime) int64 { return t.Elements })
}

// LengthOf is the length of a row with so many elements, as ElementsOf counts them.
func (s *Sizes) LengthOf(elements int64) int64 {
	return s.convert(elements, func(t SizeTime) int64 { return t.Elements }, func(t SizeTime) int64 { return t.Length })
}

// convert converts one measure of a size into another, on the line through the sizes, and in proportion below
// the smallest.
func (s *Sizes) convert(x int64, from, to func(SizeTime) int64) int64 {
	at := slices.IndexFunc(s.Times, func(t SizeTime) bool { return from(t) >= x })
	if len(s.Times) == 1 || at == 0 {
		return to(s.Times[0]) * x / from(s.Times[0])
	}
	if at < 0 {
		at = len(s.Times) - 1
	}
	a, b := s.Times[at-1], s.Times[at]
	return to(a) + (to(b)-to(a))*(x-from(a))/(from(b)-from(a))
}

// Class is the least of the sizes, in elements of a row, that is not below one; above the largest,
// the least multiple of that. Times are planned by class, so that they do not change with every request.
func (s *Sizes) Class(elements int64) int64 {
	for _, t := range s.Times {
		if t.Elements >= elements {
			return t.Elements
		}
	}
	largest := s.Times[len(s.Times)-1].Elements
	return (s.bounded(elements) + largest - 1) / largest * largest
}

// maxBeyond bounds sizes in largest known ones: nothing is known of the times beyond.
const maxBeyond = 64

// bounded is a size, or the largest of which times are estimated.
func (s *Sizes) bounded(elements int64) int64 {
	return min(elements, maxBeyond*s.Times[len(s.Times)-1].Elements)
}

// SizeFactor is by how much a batch whose rows have to elements takes longer than one whose rows
// have from; 0 elements are the profile's own. It is 1 if the times by size are unknown.
func (p *Profile) SizeFactor(batch int, from, to int64) float64 {
	if p.BySize == nil {
		return 1
	}
	of := func(elements int64) float64 {
		if elements <= 0 {
			return 1
		}
		return p.BySize.factor(batch, p.BySize.bounded(elements))
	}
	return of(to) / of(from)
}

// Sized returns the profile with the times of batches whose rows have so many elements. It is p
// itself for 0, and if its times by size are unknown.
func (p *Profile) Sized(elements int64) *Profile {
	if p.BySize == nil || elements <= 0 || elements == p.BySize.Elements {
		return p
	}
	out := *p
	elements = p.BySize.bounded(elements)
	out.Measurements = slices.Clone(p.Measurements)
	for i := range out.Measurements {
		m := &out.Measurements[i]
		f := p.BySize.factor(m.Batch, elements)
		for _, t := range []*float64{&m.Median, &m.P95, &m.CPU, &m.In, &m.Compute, &m.Out} {
			*t = min(*t*f, float64(time.Hour.Microseconds()))
		}
	}
	return &out
}

// Reach is the largest length, among those of which the times are known, for which holds is true
// of the profile with that length. It is 0 if holds is false for the smallest, and the profile's times by size must be
// known. all: it holds for every length up to the largest known.
func (p *Profile) Reach(holds func(*Profile) bool) (length int64, all bool) {
	s := p.BySize
	below, above := s.Times[0].Length, s.Times[len(s.Times)-1].Length
	at := func(length int64) bool { return holds(p.Sized(s.ElementsOf(length))) }
	switch {
	case !at(below):
		return 0, false
	case at(above):
		return above, true
	}
	for above-below > 1 {
		middle := (below + above) / 2
		if at(middle) {
			below = middle
		} else {
			above = middle
		}
	}
	return below, false
}
