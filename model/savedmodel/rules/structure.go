package rules

import (
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/shape"
)

// dimensions is the shape that a tensor's contents describe; nil if not even
// the rank is known.
func dimensions(v Value) []int64 {
	if v.Ints == nil {
		if len(v.Shape) == 1 && v.Shape[0] >= 0 && v.Shape[0] <= maxRank {
			return unknown(int(v.Shape[0]))
		}
		return nil
	}
	if len(v.Shape) == 0 {
		return nil // A scalar -1 stands for any shape.
	}
	return bounded(v.Ints)
}

// sized is an operator whose output has the shape in input i.
func sized(i int) func(*Call) ([]Value, error) {
	return func(c *Call) ([]Value, error) {
		return []Value{{Value: shape.Value{Elem: c.in(0).Elem, Shape: dimensions(c.in(i))}}}, nil
	}
}

func fill(c *Call) ([]Value, error) {
	value := c.in(1)
	out := of(value, dimensions(c.in(0)))
	if n := product(out[0].Shape); len(value.Ints) == 1 && n >= 0 && n <= maxInts {
		out[0].Ints = slices.Repeat(value.Ints, int(n))
	}
	return out, nil
}

// unary is an operator whose output has the shape of input i.
func unary(i int) func(*Call) ([]Value, error) {
	return func(c *Call) ([]Value, error) { return of(c.in(i), c.in(i).Shape), nil }
}

func first(c *Call) ([]Value, error) { return c.Inputs[:min(1, len(c.Inputs))], nil }

// shapesOf is Shape and ShapeN.
func shapesOf(c *Call) ([]Value, error) {
	var out []Value
	for _, v := range c.Inputs {
		if v.Shape == nil {
			out = append(out, whole([]int64{-1}, nil))
			continue
		}
		ints := slices.Clone(v.Shape)
		for i, d := range ints {
			if d < 0 {
				ints[i] = shape.Unknown
			}
		}
		out = append(out, whole([]int64{int64(len(ints))}, ints))
	}
	return out, nil
}

func rank(c *Call) ([]Value, error) {
	out := whole([]int64{}, nil)
	if v := c.in(0); v.Shape != nil {
		out.Ints = []int64{int64(len(v.Shape))}
	}
	return []Value{out}, nil
}

func sizeOf(c *Call) ([]Value, error) {
	out := whole([]int64{}, nil)
	if n := product(c.in(0).Shape); n >= 0 {
		out.Ints = []int64{n}
	}
	return []Value{out}, nil
}

// bincount counts, in each row, how often there is each number below the second
// input.
func bincount(c *Call) ([]Value, error) {
	x, n := c.in(0), int64(-1)
	if size, ok := c.scalar(1); ok {
		n = size
	}
	if x.Shape == nil {
		return of(c.in(2), nil), nil
	}
	return of(c.in(2), append(slices.Clone(x.Shape[:max(len(x.Shape)-1, 0)]), n)), nil
}

// pack stacks tensors of one shape along a new axis.
func pack(c *Call) ([]Value, error) {
	var each []int64
	var ints []int64
	followed := false
	for _, v := range c.Inputs {
		if each != nil && v.Shape != nil && len(v.Shape) != len(each) {
			return nil, fmt.Errorf("shapes %v and %v cannot be stacked", each, v.Shape)
		}
		each = refine(v.Shape, each)
		if len(v.Ints) == 1 && len(v.Shape) == 0 {
			ints, followed = append(ints, v.Ints[0]), true
		} else {
			ints = append(ints, shape.Unknown)
		}
	}
	if each == nil {
		return of(c.in(0), nil), nil
	}
	at, err := axis(c.int("axis"), len(each)+1)
	if err != nil {
		return nil, err
	}
	out := of(c.in(0), slices.Insert(slices.Clone(each), at, int64(len(c.Inputs))))
	if followed && len(each) == 0 {
		out[0].Ints = ints
	}
	return out, nil
}

func unpack(c *Call) ([]Value, error) {
	x, n := c.in(0), c.count("num")
	if x.Shape == nil {
		return nil, nil
	}
	at, err := axis(c.int("axis"), len(x.Shape))
	if err != nil {
		return nil, err
	}
	if d := x.Shape[at]; d >= 0 && d != int64(n) {
		return nil, fmt.Errorf("dimension %d of input %v is not %d", at, x.Shape, n)
	}
	each := slices.Delete(slices.Clone(x.Shape), at, at+1)
	var out []Value
	for i := range n {
		v := of(x, each)[0]
		if len(x.Shape) == 1 && i < len(x.Ints) {
			v.Ints = x.Ints[i : i+1]
		}
		out = append(out, v)
	}
	return out, nil
}

func pad(c *Call) ([]Value, error) {
	x, edges := c.in(0), c.ints(1)
	if x.Shape == nil {
		return of(x, nil), nil
	}
	if edges == nil {
		return of(x, unknown(len(x.Shape))), nil
	}
	if len(edges) != 2*len(x.Shape) {
		return nil, fmt.Errorf("paddings %v do not fit input %v", edges, x.Shape)
	}
	dims := slices.Clone(x.Shape)
	for i := range dims {
		dims[i] = plus(dims[i], plus(edges[2*i], edges[2*i+1]))
	}
	return of(x, dims), nil
}

// cut is Slice: begin and size, -1 for all that is left.
func cut(c *Call) ([]Value, error) {
	x, begin, size := c.in(0), c.in(1).Ints, c.in(2).Ints
	if x.Shape == nil {
		return of(x, dimensions(c.in(2))), nil
	}
	if size == nil {
		return of(x, unknown(len(x.Shape))), nil
	}
	if len(size) != len(x.Shape) || begin != nil && len(begin) != len(x.Shape) {
		return nil, fmt.Errorf("begin %v and size %v do not fit input %v", begin, size, x.Shape)
	}
	dims := slices.Clone(size)
	for i, s := range size {
		d := x.Shape[i]
		switch {
		case s >= 0 && d >= 0 && s > d:
			return nil, fmt.Errorf("size %v is more than input %v has", size, x.Shape)
		case s != -1:
		case begin == nil || begin[i] < 0 || d < 0:
			dims[i] = -1
		default:
			dims[i] = max(d-begin[i], 0)
		}
	}
	out := of(x, dims)
	if len(dims) == 1 && begin != nil && begin[0] >= 0 && dims[0] >= 0 && begin[0] <= int64(len(x.Ints))-dims[0] {
		out[0].Ints = x.Ints[begin[0] : begin[0]+dims[0]]
	}
	return out, nil
}

// gather is Gather, GatherV2 and ResourceGather: (params, indices, axis).
func gather(c *Call) ([]Value, error) {
	params, indices := c.in(0), c.in(1)
	batch, at := c.int("batch_dims"), c.int("batch_dims")
	if len(c.Inputs) > 2 {
		var ok bool
		if at, ok = c.scalar(2); !ok {
			return of(params, nil), nil
		}
	}
	if params.Shape == nil || indices.Shape == nil {
		return of(params, nil), nil
	}
	if batch < 0 {
		batch += int64(len(indices.Shape))
	}
	along, err := axis(at, len(params.Shape))
	if err != nil {
		return nil, err
	}
	if batch < 0 || batch > int64(along) || batch > int64(len(indices.Shape)) {
		return nil, fmt.Errorf("batch_dims %d for input %v and indices %v", batch, params.Shape, indices.Shape)
	}
	out := of(params, slices.Concat([]int64{}, params.Shape[:along], indices.Shape[batch:], params.Shape[along+1:]))
	if len(params.Shape) == 1 && len(indices.Ints) > 0 {
		for _, i := range indices.Ints {
			if i < 0 || i >= int64(len(params.Ints)) {
				out[0].Ints = nil
				break
			}
			out[0].Ints = append(out[0].Ints, params.Ints[i])
		}
	}
	return out, nil
}

// selected is Select: the condition may be a vector where the others have more
// dimensions.
func selected(c *Call) ([]Value, error) {
	x, y := c.in(1), c.in(2)
	return of(x, refine(x.Shape, y.Shape)), nil
}

// nonZero is Where with one input: as many rows as there are hits.
func nonZero(c *Call) ([]Value, error) {
	out := Value{Value: shape.Value{Elem: onnxpb.TensorProto_INT64}}
	if x := c.in(0).Shape; x != nil {
		out.Shape = []int64{-1, int64(len(x))}
	}
	return []Value{out}, nil
}

func scalarOf(c *Call) ([]Value, error) { return of(c.in(0), []int64{}), nil }
