package cut

import (
	"errors"
	"fmt"
	"slices"
)

// Group is consecutive layers that run as one round (Gillis §III-C).
type Group struct {
	model *Model
	// First and End bound the layers: First and all up to, but without, End.
	First, End int
	operators  []int
	outputs    []string
}

// Group groups the layers from first up to, but without, end.
func (m *Model) Group(first, end int) (*Group, error) {
	if first < 0 || first >= end || end > len(m.layers) {
		return nil, fmt.Errorf("layers %d to %d: the model has layers 0 to %d", first, end-1, len(m.layers)-1)
	}
	g := &Group{model: m, First: first, End: end}
	for _, l := range m.layers[first:end] {
		g.operators = append(g.operators, l.Operators...)
	}
	last := end == len(m.layers)
	out := m.layers[end-1].Out
	for _, name := range out {
		if len(out) == 1 || slices.Contains(g.operators, m.values[name].from) {
			g.outputs = append(g.outputs, name)
		}
	}
	for _, name := range m.outputs {
		from := m.values[name].from
		light := from < 0 || !m.nodes[from].heavy
		if (last && light || slices.Contains(g.operators, from)) && !slices.Contains(g.outputs, name) {
			g.outputs = append(g.outputs, name)
		}
	}
	return g, nil
}

// Shape is the shape of the group's only output at a batch size, nil if it has several or
// its size is unknown.
func (g *Group) Shape(batch int) []int64 {
	if v := g.output(); v != nil {
		return v.at(whole(v.shape), batch)
	}
	return nil
}

// Divisible reports whether the group has one output of known size, and the model can be cut.
func (g *Group) Divisible() bool { return g.output() != nil }

// output is the group's only output, nil if it has several or its size is unknown.
func (g *Group) output() *value {
	if g.model.opaque != "" || len(g.outputs) != 1 || !g.model.values[g.outputs[0]].known() {
		return nil
	}
	return g.model.values[g.outputs[0]]
}

// onlyWhole says why a group without an output to divide can only be whole.
func (g *Group) onlyWhole() error {
	if g.model.opaque != "" {
		return fmt.Errorf("the model can only be whole: %s", g.model.opaque)
	}
	return errors.New("the group has several outputs, or one of unknown size; it can only be whole")
}

// Cut says how a group's only output is divided: a region for each part. In the dimension
// of the batch, each region is whole.
type Cut struct {
	// Name is for people: "whole", "2x2" for height × width, "channels 4".
	Name    string
	Regions []Region
}

// Whole is the cut into one part, which every group has.
func (g *Group) Whole() Cut { return Cut{Name: "whole"} }

// Along divides dimension d of the output into parts of nearly equal size. The boundaries
// are multiples of unit. The error says why the dimension cannot be divided.
func (g *Group) Along(d, parts int, unit int64) (Cut, error) {
	return g.divide(fmt.Sprintf("dimension %d by %d", d, parts), map[int][]int64{d: {int64(parts), unit}})
}

// Grid divides the output of a convolution or pooling into high × wide parts.
func (g *Group) Grid(high, wide int) (Cut, error) {
	v := g.output()
	if v == nil || len(v.shape) != 4 {
		return Cut{}, errors.New("the group's output has no height and width")
	}
	return g.divide(fmt.Sprintf("%dx%d", high, wide), map[int][]int64{2: {int64(high), 1}, 3: {int64(wide), 1}})
}

// Channels divides the channels of a convolution, or the columns of a dense layer.
func (g *Group) Channels(parts int) (Cut, error) {
	v := g.output()
	if v == nil || len(v.shape) < 2 {
		return Cut{}, errors.New("the group's output has no channels")
	}
	d := len(v.shape) - 1
	if len(v.shape) > 3 {
		d = 1
	}
	return g.divide(fmt.Sprintf("channels %d", parts), map[int][]int64{d: {int64(parts), 1}})
}

// Rows divides the first dimension after the batch of a tensor of three dimensions, such as a
// sentence's words.
func (g *Group) Rows(parts int) (Cut, error) {
	v := g.output()
	if v == nil || len(v.shape) != 3 {
		return Cut{}, errors.New("the group's output has no rows")
	}
	return g.divide(fmt.Sprintf("rows %d", parts), map[int][]int64{1: {int64(parts), 1}})
}

// divide makes the regions of all combinations of the dimensions' spans.
func (g *Group) divide(name string, by map[int][]int64) (Cut, error) {
	v := g.output()
	if v == nil {
		return Cut{}, g.onlyWhole()
	}
	regions := []Region{whole(v.shape)}
	for d := range v.shape {
		how, divided := by[d]
		if !divided {
			continue
		}
		if v.rows(d) {
			return Cut{}, fmt.Errorf("dimension %d of %q grows with the batch", d, v.name)
		}
		spans := Divide(v.shape[d], int(how[0]), how[1])
		if spans == nil {
			return Cut{}, fmt.Errorf("the %d positions of dimension %d of %q cannot be divided into %d parts by %ds", v.shape[d], d, v.name, how[0], how[1])
		}
		var next []Region
		for _, r := range regions {
			for _, s := range spans {
				part := slices.Clone(r)
				part[d] = s
				next = append(next, part)
			}
		}
		regions = next
	}
	return Cut{Name: name, Regions: regions}, nil
}

// check returns an error unless the regions fill the output without overlapping.
func (g *Group) check(c Cut) error {
	v := g.output()
	if v == nil {
		return g.onlyWhole()
	}
	var filled, all int64 = 0, 1
	for d, size := range v.shape {
		all *= size
		for i, r := range c.Regions {
			if len(r) != len(v.shape) || r[d].From < 0 || r[d].To > size || r[d].empty() {
				return fmt.Errorf("part %d of %q is %v; the tensor is %v", i, v.name, r, whole(v.shape))
			}
			if v.rows(d) && r[d] != (Span{0, size}) {
				return fmt.Errorf("part %d divides dimension %d of %q, which grows with the batch", i, d, v.name)
			}
		}
	}
	for i, r := range c.Regions {
		size := int64(1)
		for _, s := range r {
			size *= s.Size()
		}
		filled += size
		for k, o := range c.Regions[:i] {
			if overlap(r, o) {
				return fmt.Errorf("parts %d and %d of %q overlap: %v and %v", k, i, v.name, o, r)
			}
		}
	}
	if filled != all {
		return fmt.Errorf("the parts of %q leave gaps: they are %d of its %d elements", v.name, filled, all)
	}
	return nil
}

func overlap(r, o Region) bool {
	for d := range r {
		if r[d].From >= o[d].To || o[d].From >= r[d].To {
			return false
		}
	}
	return true
}
