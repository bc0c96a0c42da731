package shape

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

func gather(c *call) ([]Value, error) {
	x, index := c.in(0), c.in(1)
	if x.Shape == nil || index.Shape == nil {
		return []Value{x.of(nil)}, nil
	}
	at, err := axis(c.int("axis", 0), len(x.Shape))
	if err != nil {
		return nil, err
	}
	out := x.of(join(x.Shape[:at], index.Shape, x.Shape[at+1:]))
	if x.Ints == nil || len(x.Shape) != 1 || index.Ints == nil {
		return []Value{out}, nil
	}
	for _, i := range index.Ints {
		if i < 0 && i != Unknown {
			i += int64(len(x.Ints))
		}
		switch {
		case i == Unknown:
			out.Ints = append(out.Ints, Unknown)
		case i < 0 || i >= int64(len(x.Ints)):
			return nil, fmt.Errorf("index %d is not in %v", i, x.Ints)
		default:
			out.Ints = append(out.Ints, x.Ints[i])
		}
	}
	return []Value{out}, nil
}

func gatherElements(c *call) ([]Value, error) {
	return []Value{c.in(0).of(c.in(1).Shape)}, nil
}

func gatherND(c *call) ([]Value, error) {
	x, index := c.in(0), c.in(1).Shape
	batch := c.int("batch_dims", 0)
	if x.Shape == nil || len(index) == 0 || index[len(index)-1] < 0 {
		return []Value{x.of(nil)}, nil
	}
	from := batch + index[len(index)-1]
	if batch < 0 || from < 0 || from > int64(len(x.Shape)) {
		return nil, fmt.Errorf("indices %v do not fit input %v", index, x.Shape)
	}
	return []Value{x.of(join(index[:len(index)-1], x.Shape[from:]))}, nil
}

// slice infers Slice. Its starts, ends, axes and steps are inputs 1 to 4, and
// attributes before opset 10.
func slice(c *call) ([]Value, error) {
	x := c.in(0)
	if x.Shape == nil {
		return []Value{x.of(nil)}, nil
	}
	starts, ok1 := c.intsOr("starts", 1)
	ends, ok2 := c.intsOr("ends", 2)
	as, ok3 := c.intsOr("axes", 3)
	steps, ok4 := c.intsOr("steps", 4)
	if !ok3 {
		return []Value{x.of(unknown(len(x.Shape)))}, nil
	}
	out := x.of(slices.Clone(x.Shape))
	if as == nil {
		for i := range max(len(starts), len(ends)) {
			as = append(as, int64(i))
		}
	}
	if !ok1 || !ok2 || !ok4 {
		return forget(out, as)
	}
	if len(starts) != len(as) || len(ends) != len(as) || steps != nil && len(steps) != len(as) {
		return nil, fmt.Errorf("starts %v, ends %v, axes %v and steps %v differ in number", starts, ends, as, steps)
	}
	for i, a := range as {
		at, err := axis(a, len(x.Shape))
		if err != nil {
			return nil, err
		}
		step := int64(1)
		if steps != nil {
			step = steps[i]
		}
		if step == 0 {
			return nil, fmt.Errorf("steps %v contain a zero", steps)
		}
		if out.Shape[at] < 0 {
			continue
		}
		first, n := span(out.Shape[at], starts[i], ends[i], step)
		out.Shape[at] = n
		if x.Ints != nil && len(x.Shape) == 1 && len(as) == 1 && n <= int64(len(x.Ints)) {
			out.Ints = make([]int64, 0, n)
			for k := range n {
				out.Ints = append(out.Ints, x.Ints[first+k*step])
			}
		}
	}
	return []Value{out}, nil
}

// forget makes the dimensions that a Slice cuts unknown; without axes, all of them.
func forget(out Value, as []int64) ([]Value, error) {
	set, err := axes(as, len(out.Shape))
	for i := range set {
		out.Shape[i] = -1
	}
	return []Value{out}, err
}

// span is the first index and the number of indices that numpy's start:end:step
// selects from a dimension.
func span(size, start, end, step int64) (first, n int64) {
	bound := func(v, low, high int64) int64 {
		if v < 0 {
			v += size
		}
		return min(max(v, low), high)
	}
	if step > 0 {
		first = bound(start, 0, size)
		n = bound(end, 0, size) - first
	} else {
		first = bound(start, 0, size-1)
		n, step = first-bound(end, -1, size-1), -max(step, -math.MaxInt64)
	}
	if n <= 0 {
		return first, 0
	}
	return first, (n-1)/step + 1
}

func expand(c *call) ([]Value, error) {
	x, target := c.in(0), c.in(1).Ints
	if target == nil || x.Shape == nil {
		return []Value{x.of(nil)}, nil
	}
	shape, err := broadcast(x.Shape, known(target))
	if err != nil {
		return nil, err
	}
	out := x.of(shape)
	if n := product(shape); len(x.Ints) == 1 && n >= 0 && n <= maxInts {
		out.Ints = repeat(x.Ints[0], n)
	}
	return []Value{out}, nil
}

// known turns the contents of a tensor into a shape.
func known(ints []int64) []int64 {
	out := make([]int64, len(ints))
	for i, v := range ints {
		out[i] = max(v, -1)
	}
	return out
}

func repeat(v, n int64) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = v
	}
	return out
}

func tile(c *call) ([]Value, error) {
	x, repeats := c.in(0), c.in(1).Ints
	if x.Shape == nil || repeats == nil {
		return []Value{x.of(slices.Clone(unknownLike(x.Shape)))}, nil
	}
	if len(repeats) != len(x.Shape) {
		return nil, fmt.Errorf("repeats %v do not fit input %v", repeats, x.Shape)
	}
	out := make([]int64, len(repeats))
	for i, r := range repeats {
		out[i] = times(x.Shape[i], r)
	}
	return []Value{x.of(out)}, nil
}

func unknownLike(shape []int64) []int64 {
	if shape == nil {
		return nil
	}
	return unknown(len(shape))
}

func pad(c *call) ([]Value, error) {
	x := c.in(0)
	pads, ok := c.intsOr("pads", 1)
	as, ok2 := c.intsOr("axes", 3)
	if x.Shape == nil || !ok || !ok2 {
		return []Value{x.of(unknownLike(x.Shape))}, nil
	}
	if len(as) == 0 {
		for i := range x.Shape {
			as = append(as, int64(i))
		}
	}
	if len(pads) != 2*len(as) {
		return nil, fmt.Errorf("pads %v do not fit input %v", pads, x.Shape)
	}
	out := slices.Clone(x.Shape)
	for i, a := range as {
		at, err := axis(a, len(out))
		if err != nil {
			return nil, err
		}
		if out[at] >= 0 {
			out[at] = max(out[at]+pads[i]+pads[i+len(as)], -1)
		}
	}
	return []Value{x.of(out)}, nil
}

// resize infers Resize and its predecessor Upsample, from sizes or from scales.
// Scales are floats.
func resize(c *call) ([]Value, error) {
	x, scalesAt := c.in(0), 2
	if len(c.inputs) == 2 {
		scalesAt = 1 // Upsample, and Resize before opset 11
	}
	if x.Shape == nil || c.given(3) && c.in(3).Ints == nil || c.attributes["axes"] != nil {
		return []Value{x.of(unknownLike(x.Shape))}, nil
	}
	if sizes := c.in(3).Ints; c.given(3) && len(sizes) > 0 {
		if len(sizes) != len(x.Shape) {
			return nil, fmt.Errorf("sizes %v do not fit input %v", sizes, x.Shape)
		}
		return []Value{x.of(known(sizes))}, nil
	}
	scales := Floats(c.in(scalesAt).Constant, maxInts)
	if a, ok := c.attributes["scales"]; ok {
		scales = a.GetFloats()
	}
	if len(scales) != len(x.Shape) {
		return []Value{x.of(unknown(len(x.Shape)))}, nil
	}
	out := make([]int64, len(scales))
	for i, s := range scales {
		out[i] = -1
		if size := math.Floor(float64(x.Shape[i]) * float64(s)); x.Shape[i] >= 0 && size >= 0 && size < 1<<40 {
			out[i] = int64(size)
		}
	}
	return []Value{x.of(out)}, nil
}

// Floats returns the values of a constant of floats in the model's own file with at most so
// many elements, nil for any other tensor.
func Floats(t *onnxpb.TensorProto, most int) []float32 {
	if t.GetDataType() != int32(onnxpb.TensorProto_FLOAT) || len(t.GetRawData()) > 4*most {
		return nil
	}
	if t.GetRawData() == nil {
		return t.GetFloatData()
	}
	var out []float32
	for b := t.GetRawData(); len(b) >= 4; b = b[4:] {
		out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return out
}

// join concatenates shapes. If all are empty, it is the shape of a scalar, which is
// not nil.
func join(parts ...[]int64) []int64 { return append([]int64{}, slices.Concat(parts...)...) }
