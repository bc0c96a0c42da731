// Package cut divides a model's graph over several functions, as Gillis does (ICDCS'21
// §III-C). Layers follow each other and are grouped; a group runs as a whole, or in parts
// that need nothing from each other. A part computes a region of the group's output and
// holds the regions of tensors and weights that this needs, no more: exact ranges,
// calculated backwards from the output through windows, strides, dilations and uneven pads.
// So the parts' results together are the group's, bit for bit, where the engine computes an
// element of a region as it does within the whole.
//
// The package is pure. Begin with [New] and [Model.Group]; [Group.Cut] makes parts and
// [Part.Model] makes a model of one. The table of rules in rules.go says which inputs an
// operator's output needs; an operator that is not there is never cut through.
package cut

import (
	"fmt"
	"strings"
)

// Span is a range of positions along one dimension: From and all up to, but without, To.
type Span struct{ From, To int64 }

// Size is the number of positions.
func (s Span) Size() int64 { return s.To - s.From }

// String is "[3,7)".
func (s Span) String() string { return fmt.Sprintf("[%d,%d)", s.From, s.To) }

func (s Span) empty() bool { return s.To <= s.From }

// hull is the smallest span that contains both.
func (s Span) hull(t Span) Span {
	switch {
	case s.empty():
		return t
	case t.empty():
		return s
	}
	return Span{min(s.From, t.From), max(s.To, t.To)}
}

// Region is a box of a tensor: one span per dimension. The region of a scalar is empty and
// not nil.
type Region []Span

// whole is the region of a tensor of this shape.
func whole(shape []int64) Region {
	r := make(Region, len(shape))
	for i, n := range shape {
		r[i] = Span{0, n}
	}
	return r
}

// hull is the smallest region that contains both; nil contains nothing.
func (r Region) hull(o Region) Region {
	if r == nil || o == nil {
		if r == nil {
			return o
		}
		return r
	}
	out := make(Region, len(r))
	for i := range r {
		out[i] = r[i].hull(o[i])
	}
	return out
}

func (r Region) equal(o Region) bool {
	if len(r) != len(o) {
		return false
	}
	for i := range r {
		if r[i] != o[i] {
			return false
		}
	}
	return true
}

// Whole reports whether the region is all of a tensor of this shape.
func (r Region) Whole(shape []int64) bool { return r.equal(whole(shape)) }

// Shape is the region's size in each dimension.
func (r Region) Shape() []int64 {
	shape := make([]int64, len(r))
	for i, s := range r {
		shape[i] = s.Size()
	}
	return shape
}

// String is "[0,1)×[3,7)".
func (r Region) String() string {
	texts := make([]string, len(r))
	for i, s := range r {
		texts[i] = s.String()
	}
	return strings.Join(texts, "×")
}

// Divide divides n positions into parts of nearly equal size, the larger ones first: 7 in 2
// parts are 4 and 3. Every boundary is a multiple of unit. It returns nil if there are fewer
// units than parts, or if n is no multiple of unit.
func Divide(n int64, parts int, unit int64) []Span {
	if parts < 1 || unit < 1 || n%unit != 0 || n/unit < int64(parts) {
		return nil
	}
	units, from := n/unit, int64(0)
	spans := make([]Span, parts)
	for i := range spans {
		size := units / int64(parts)
		if int64(i) < units%int64(parts) {
			size++
		}
		spans[i] = Span{from * unit, (from + size) * unit}
		from += size
	}
	return spans
}
