package shape

import (
	"fmt"
	"slices"
)

// identity returns its input with all known facts.
func identity(c *call) ([]Value, error) { return []Value{c.in(0)}, nil }

func dropout(c *call) ([]Value, error) {
	x := c.in(0)
	return []Value{x, {Elem: boolType, Shape: x.Shape}}, nil
}

// normalisation infers LayerNormalization: the output, and the mean and deviation
// with 1 for each normalised dimension.
func normalisation(c *call) ([]Value, error) {
	x := c.in(0)
	if x.Shape == nil {
		return []Value{x.of(nil)}, nil
	}
	from, err := axis(c.int("axis", -1), len(x.Shape))
	if err != nil {
		return nil, err
	}
	statistic := slices.Clone(x.Shape)
	for i := from; i < len(statistic); i++ {
		statistic[i] = 1
	}
	return []Value{x.of(x.Shape), x.of(statistic), x.of(statistic)}, nil
}

func reshape(c *call) ([]Value, error) {
	x, target := c.in(0), c.in(1).Ints
	if a, ok := c.attributes["shape"]; ok {
		target = a.GetInts()
	}
	if target == nil {
		if s := c.in(1).Shape; len(s) == 1 && s[0] >= 0 && s[0] <= 16 {
			return []Value{x.of(unknown(int(s[0])))}, nil
		}
		return []Value{x.of(nil)}, nil
	}
	out, free := make([]int64, len(target)), -1
	for i, d := range target {
		switch {
		case d == 0 && c.int("allowzero", 0) == 0:
			out[i] = -1
			if x.Shape != nil && i >= len(x.Shape) {
				return nil, fmt.Errorf("target %v copies dimension %d of input %v", target, i, x.Shape)
			}
			if x.Shape != nil {
				out[i] = x.Shape[i]
			}
		case d == -1 && free >= 0:
			return nil, fmt.Errorf("target %v leaves two dimensions open", target)
		case d == -1:
			free, out[i] = i, -1
		default:
			out[i] = max(d, -1)
		}
	}
	if err := fill(out, free, x.Shape); err != nil {
		return nil, fmt.Errorf("input %v does not fit target %v: %w", x.Shape, target, err)
	}
	return []Value{{Elem: x.Elem, Shape: out, Ints: x.Ints}}, nil
}

// fill computes the one free dimension of out from the number of elements of from.
// free is that dimension's index, -1 for none; then fill checks that out has as
// many elements.
func fill(out []int64, free int, from []int64) error {
	have := product(from)
	rest := int64(1)
	for i, d := range out {
		if i != free {
			rest = times(rest, d)
		}
	}
	switch {
	case have < 0 || rest < 0:
	case free < 0 && have != rest:
		return fmt.Errorf("%d elements do not fill %d", have, rest)
	case free >= 0 && (rest == 0 || have%rest != 0):
		return fmt.Errorf("%d elements do not fill rows of %d", have, rest)
	case free >= 0:
		out[free] = have / rest
	}
	return nil
}

func flatten(c *call) ([]Value, error) {
	x := c.in(0)
	if x.Shape == nil {
		return []Value{x.of(unknown(2))}, nil
	}
	at := c.int("axis", 1)
	if at < 0 {
		at += int64(len(x.Shape))
	}
	if at < 0 || at > int64(len(x.Shape)) {
		return nil, fmt.Errorf("axis %d is not within input %v", at, x.Shape)
	}
	return []Value{x.of([]int64{product(x.Shape[:at]), product(x.Shape[at:])})}, nil
}

func transpose(c *call) ([]Value, error) {
	x, perm := c.in(0), c.ints("perm")
	if x.Shape == nil {
		return []Value{x.of(nil)}, nil
	}
	if perm == nil {
		for i := len(x.Shape) - 1; i >= 0; i-- {
			perm = append(perm, int64(i))
		}
	}
	out, seen := []int64{}, make(map[int64]bool)
	for _, p := range perm {
		if p < 0 || p >= int64(len(x.Shape)) || seen[p] {
			return nil, fmt.Errorf("permutation %v does not fit input %v", perm, x.Shape)
		}
		seen[p] = true
		out = append(out, x.Shape[p])
	}
	if len(out) != len(x.Shape) {
		return nil, fmt.Errorf("permutation %v does not fit input %v", perm, x.Shape)
	}
	return []Value{x.of(out)}, nil
}

func squeeze(c *call) ([]Value, error) {
	x := c.in(0)
	as, known := c.intsOr("axes", 1)
	if x.Shape == nil || !known {
		return []Value{{Elem: x.Elem, Ints: x.Ints}}, nil
	}
	set := make(map[int]bool)
	if len(as) > 0 {
		var err error
		if set, err = axes(as, len(x.Shape)); err != nil {
			return nil, err
		}
	}
	for i, d := range x.Shape {
		switch {
		case len(as) == 0 && d < 0:
			return []Value{{Elem: x.Elem, Ints: x.Ints}}, nil
		case len(as) == 0:
			set[i] = d == 1
		case set[i] && d > 1:
			return nil, fmt.Errorf("dimension %d of input %v is not 1", i, x.Shape)
		}
	}
	return []Value{{Elem: x.Elem, Shape: without(x.Shape, set, false), Ints: x.Ints}}, nil
}

func unsqueeze(c *call) ([]Value, error) {
	x := c.in(0)
	as, known := c.intsOr("axes", 1)
	if x.Shape == nil || !known {
		return []Value{{Elem: x.Elem, Ints: x.Ints}}, nil
	}
	if len(as) == 0 {
		return []Value{x}, nil
	}
	rank := len(x.Shape) + len(as)
	set, err := axes(as, rank)
	if err != nil {
		return nil, err
	}
	if len(set) != len(as) {
		return nil, fmt.Errorf("axes %v name a dimension twice", as)
	}
	out, next := make([]int64, rank), 0
	for i := range out {
		out[i] = 1
		if !set[i] {
			out[i] = x.Shape[next]
			next++
		}
	}
	return []Value{{Elem: x.Elem, Shape: out, Ints: x.Ints}}, nil
}

func concat(c *call) ([]Value, error) {
	first := c.in(0)
	if first.Shape == nil {
		return []Value{first.of(nil)}, nil
	}
	at, err := axis(c.int("axis", 0), len(first.Shape))
	if err != nil {
		return nil, err
	}
	out, ints, followed := slices.Clone(first.Shape), []int64{}, len(first.Shape) == 1
	out[at] = 0
	for _, v := range c.inputs {
		if v.Shape == nil {
			return []Value{first.of(nil)}, nil
		}
		if len(v.Shape) != len(out) {
			return nil, fmt.Errorf("shapes %v and %v cannot be joined along axis %d", first.Shape, v.Shape, at)
		}
		for i, d := range v.Shape {
			switch {
			case i == at && (d < 0 || out[i] < 0):
				out[i] = -1
			case i == at:
				out[i] += d
			case out[i] < 0:
				out[i] = d
			case d >= 0 && d != out[i]:
				return nil, fmt.Errorf("shapes %v and %v cannot be joined along axis %d", first.Shape, v.Shape, at)
			}
		}
		followed = followed && v.Ints != nil
		ints = append(ints, v.Ints...)
	}
	if !followed || len(ints) > maxInts {
		ints = nil
	}
	return []Value{{Elem: first.Elem, Shape: out, Ints: ints}}, nil
}

func split(c *call) ([]Value, error) {
	x, parts := c.in(0), len(c.node.GetOutput())
	out := make([]Value, parts)
	for i := range out {
		out[i].Elem = x.Elem
	}
	sizes, known := c.intsOr("split", 1)
	if x.Shape == nil {
		return out, nil
	}
	at, err := axis(c.int("axis", 0), len(x.Shape))
	if err != nil {
		return nil, err
	}
	whole := x.Shape[at]
	if known && len(sizes) > 0 && len(sizes) != parts {
		return nil, fmt.Errorf("%d sizes for %d parts", len(sizes), parts)
	}
	if len(sizes) > 0 && slices.Min(sizes) < 0 {
		return nil, fmt.Errorf("sizes %v are not all positive", sizes)
	}
	start, left := int64(0), whole
	for i := range out {
		size := int64(-1)
		switch {
		case known && len(sizes) > 0:
			size = sizes[i]
		case known && whole >= 0:
			size = min(left, (whole-1)/int64(parts)+1)
			left -= size
		}
		out[i].Shape = slices.Clone(x.Shape)
		out[i].Shape[at] = size
		if x.Ints != nil && len(x.Shape) == 1 && size >= 0 && start+size <= int64(len(x.Ints)) {
			out[i].Ints = x.Ints[start : start+size]
			start += size
		}
	}
	return out, nil
}

func depthToSpace(c *call) ([]Value, error) { return blocks(c, false) }
func spaceToDepth(c *call) ([]Value, error) { return blocks(c, true) }

func blocks(c *call, deeper bool) ([]Value, error) {
	x, size := c.in(0), c.int("blocksize", 0)
	if x.Shape == nil {
		return []Value{x.of(nil)}, nil
	}
	if len(x.Shape) != 4 || size < 1 || size > 1<<16 {
		return nil, fmt.Errorf("input %v must have four dimensions and blocksize %d be from 1 to %d", x.Shape, size, 1<<16)
	}
	out := slices.Clone(x.Shape)
	for i := 1; i < 4; i++ {
		by := size
		if i == 1 {
			by *= size
		}
		switch {
		case out[i] < 0:
		case deeper == (i == 1):
			out[i] = times(out[i], by)
		case out[i]%by != 0:
			return nil, fmt.Errorf("input %v cannot be cut into blocks of %d", x.Shape, size)
		default:
			out[i] /= by
		}
	}
	return []Value{x.of(out)}, nil
}
