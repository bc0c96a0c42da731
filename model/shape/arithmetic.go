package shape

import (
	"fmt"
	"slices"
)

// unary is an operator whose output has the shape of its first input.
func unary(c *call) ([]Value, error) {
	x := c.in(0)
	out := x.of(slices.Clone(x.Shape))
	if x.Ints != nil && foldUnary[c.node.GetOpType()] != nil {
		out.Ints = mapInts(x.Ints, foldUnary[c.node.GetOpType()])
	}
	return []Value{out}, nil
}

// elementwise is an operator that broadcasts its inputs.
func elementwise(c *call) ([]Value, error) {
	out := c.in(0)
	for _, v := range c.inputs[min(1, len(c.inputs)):] {
		shape, err := broadcast(out.Shape, v.Shape)
		if err != nil {
			return nil, err
		}
		ints := foldBinary(c.node.GetOpType(), out, v, product(shape))
		out = Value{Elem: out.Elem, Shape: shape, Ints: ints}
	}
	return []Value{out}, nil
}

func where(c *call) ([]Value, error) {
	condition, x, y := c.in(0), c.in(1), c.in(2)
	shape, err := broadcast(x.Shape, y.Shape)
	if err == nil {
		shape, err = broadcast(condition.Shape, shape)
	}
	if err != nil {
		return nil, err
	}
	out := x.of(shape)
	n := product(shape)
	if condition.Ints == nil || x.Ints == nil || y.Ints == nil || n < 0 || n > maxInts {
		return []Value{out}, nil
	}
	for i := range n {
		from := y.Ints
		at := func(ints []int64) int64 { return pick(ints, i, n) }
		switch at(condition.Ints) {
		case Unknown:
			from = []int64{Unknown}
		case 0:
		default:
			from = x.Ints
		}
		out.Ints = append(out.Ints, at(from))
	}
	return []Value{out}, nil
}

// broadcast is the shape of two tensors combined by numpy's broadcasting rule.
func broadcast(a, b []int64) ([]int64, error) {
	if a == nil || b == nil {
		return nil, nil
	}
	if len(a) < len(b) {
		a, b = b, a
	}
	out := make([]int64, len(a))
	copy(out, a)
	for i, d := range b {
		at := len(a) - len(b) + i
		switch o := out[at]; {
		case d == 1 || o == d:
		case o == 1 || o == -1:
			out[at] = d
		case d == -1:
		default:
			return nil, fmt.Errorf("shapes %v and %v cannot be broadcast", a, b)
		}
	}
	return out, nil
}

func matMul(c *call) ([]Value, error) { return multiply(c.in(0), c.in(1)) }

// multiply multiplies two tensors of matrices.
func multiply(x, y Value) ([]Value, error) {
	a, b := x.Shape, y.Shape
	if a == nil || b == nil {
		return []Value{x.of(nil)}, nil
	}
	if len(a) == 0 || len(b) == 0 {
		return nil, fmt.Errorf("shapes %v and %v cannot be multiplied: one is a scalar", a, b)
	}
	rowless, columnless := len(a) == 1, len(b) == 1
	if rowless {
		a = []int64{1, a[0]}
	}
	if columnless {
		b = []int64{b[0], 1}
	}
	if k, l := a[len(a)-1], b[len(b)-2]; k >= 0 && l >= 0 && k != l {
		return nil, fmt.Errorf("shapes %v and %v cannot be multiplied: %d is not %d", x.Shape, y.Shape, k, l)
	}
	out, err := broadcast(a[:len(a)-2], b[:len(b)-2])
	if err != nil {
		return nil, err
	}
	if !rowless {
		out = append(out, a[len(a)-2])
	}
	if !columnless {
		out = append(out, b[len(b)-1])
	}
	return []Value{x.of(out)}, nil
}

func gemm(c *call) ([]Value, error) {
	x, y := c.in(0), c.in(1)
	if x.Shape == nil || y.Shape == nil {
		return []Value{x.of(nil)}, nil
	}
	if len(x.Shape) != 2 || len(y.Shape) != 2 {
		return nil, fmt.Errorf("shapes %v and %v are not two matrices", x.Shape, y.Shape)
	}
	m, k := x.Shape[0], x.Shape[1]
	if c.int("transA", 0) != 0 {
		m, k = k, m
	}
	l, n := y.Shape[0], y.Shape[1]
	if c.int("transB", 0) != 0 {
		l, n = n, l
	}
	if k >= 0 && l >= 0 && k != l {
		return nil, fmt.Errorf("shapes %v and %v cannot be multiplied: %d is not %d", x.Shape, y.Shape, k, l)
	}
	return []Value{x.of([]int64{m, n})}, nil
}

// matMulCost is the output's elements times the inner dimension.
func matMulCost(c *call, out []Value) int64 {
	a := c.in(0).Shape
	if len(a) == 0 {
		return -1
	}
	inner := a[len(a)-1]
	if c.int("transA", 0) != 0 {
		inner = a[0]
	}
	return times(out[0].Elements(), inner)
}

// recurrent infers LSTM (four gates), GRU (three) and RNN (one).
func recurrent(gates int64) func(*call) ([]Value, error) {
	return func(c *call) ([]Value, error) {
		x, r := c.in(0), c.in(2)
		if len(x.Shape) != 3 {
			if x.Shape == nil {
				return nil, nil
			}
			return nil, fmt.Errorf("input %v does not have three dimensions", x.Shape)
		}
		hidden, directions := c.int("hidden_size", -1), int64(1)
		if hidden < 0 && len(r.Shape) == 3 {
			hidden = r.Shape[2]
		}
		if w := c.in(1).Shape; len(w) == 3 && hidden >= 0 && (w[1] >= 0 && w[1] != times(gates, hidden) || w[2] >= 0 && x.Shape[2] >= 0 && w[2] != x.Shape[2]) {
			return nil, fmt.Errorf("weights %v do not fit input %v and %d cells", w, x.Shape, hidden)
		}
		if c.string("direction") == "bidirectional" {
			directions = 2
		}
		all, last := []int64{x.Shape[0], directions, x.Shape[1], hidden}, []int64{directions, x.Shape[1], hidden}
		if c.int("layout", 0) == 1 {
			all, last = []int64{x.Shape[0], x.Shape[1], directions, hidden}, []int64{x.Shape[0], directions, hidden}
		}
		return []Value{x.of(all), x.of(last), x.of(last)}, nil
	}
}

func recurrentCost(gates int64) func(*call, []Value) int64 {
	return func(c *call, out []Value) int64 {
		x, r := c.in(0).Shape, c.in(2).Shape
		if len(x) != 3 || len(r) != 3 {
			return -1
		}
		steps := times(x[0], x[1])
		each := times(r[0], times(times(gates, r[2]), max(x[2], 0)+max(r[2], 0)))
		return times(steps, each)
	}
}

func reduce(c *call) ([]Value, error) {
	x := c.in(0)
	as, known := c.intsOr("axes", 1)
	if x.Shape == nil || !known && c.int("keepdims", 1) == 0 {
		return []Value{x.of(nil)}, nil
	}
	if !known {
		return []Value{x.of(unknown(len(x.Shape)))}, nil
	}
	if len(as) == 0 && c.int("noop_with_empty_axes", 0) != 0 {
		return []Value{x}, nil
	}
	set, err := axes(as, len(x.Shape))
	if err != nil {
		return nil, err
	}
	out := x.of(without(x.Shape, set, c.int("keepdims", 1) != 0))
	if len(x.Shape) <= 1 {
		out.Ints = foldReduce(c.node.GetOpType(), x.Ints)
	}
	return []Value{out}, nil
}

// without takes dimensions out of a shape, or makes them 1.
func without(shape []int64, set map[int]bool, keep bool) []int64 {
	out := []int64{}
	for i, d := range shape {
		switch {
		case !set[i]:
			out = append(out, d)
		case keep:
			out = append(out, 1)
		}
	}
	return out
}

// argument infers ArgMax and ArgMin.
func argument(c *call) ([]Value, error) {
	x := c.in(0)
	if x.Shape == nil {
		return []Value{{Elem: int64Type}}, nil
	}
	i, err := axis(c.int("axis", 0), len(x.Shape))
	if err != nil {
		return nil, err
	}
	out := without(x.Shape, map[int]bool{i: true}, c.int("keepdims", 1) != 0)
	return []Value{{Elem: int64Type, Shape: out}}, nil
}

func topK(c *call) ([]Value, error) {
	x, k := c.in(0), c.in(1).Ints
	if x.Shape == nil {
		return []Value{x.of(nil), {Elem: int64Type}}, nil
	}
	i, err := axis(c.int("axis", -1), len(x.Shape))
	if err != nil {
		return nil, err
	}
	out := slices.Clone(x.Shape)
	out[i] = c.int("k", -1)
	if len(k) == 1 {
		out[i] = max(k[0], -1)
	}
	return []Value{x.of(out), {Elem: int64Type, Shape: out}}, nil
}
