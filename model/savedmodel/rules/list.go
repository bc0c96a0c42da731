package rules

import (
	"slices"

	"github.com/faas-infer/faas-infer/model/shape"
)

// listOf is a list of tensors; by itself it is a scalar.
func listOf(element []int64, length int64) []Value {
	return []Value{{Value: shape.Value{Shape: []int64{}}, List: &List{element, length}}}
}

// element is what is known of the tensors in the list in input 0, with the
// shape in another input.
func (c *Call) element(from int) []int64 {
	var dims []int64
	if l := c.in(0).List; l != nil {
		dims = l.Element
	}
	return refine(dims, dimensions(c.in(from)))
}

func (c *Call) length() int64 {
	if l := c.in(0).List; l != nil {
		return l.Length
	}
	return -1
}

// reserve is TensorListReserve: (shape, length).
func reserve(c *Call) ([]Value, error) {
	n, ok := c.scalar(1)
	if !ok || n < 0 {
		n = -1
	}
	return listOf(dimensions(c.in(0)), n), nil
}

func emptyList(c *Call) ([]Value, error) { return listOf(dimensions(c.in(0)), 0), nil }

func fromTensor(c *Call) ([]Value, error) {
	if x := c.in(0).Shape; len(x) > 0 {
		return listOf(slices.Clone(x[1:]), x[0]), nil
	}
	return listOf(dimensions(c.in(1)), -1), nil
}

// stack is TensorListStack: (list, shape).
func stack(c *Call) ([]Value, error) {
	element, n := c.element(1), c.length()
	if n < 0 && c.int("num_elements") > 0 {
		n = c.int("num_elements")
	}
	if element == nil {
		return nil, nil
	}
	return []Value{{Value: shape.Value{Shape: append([]int64{n}, element...)}}}, nil
}

func getItem(c *Call) ([]Value, error) {
	return []Value{{Value: shape.Value{Shape: c.element(2)}}}, nil
}

// setItem is TensorListSetItem: (list, index, tensor).
func setItem(c *Call) ([]Value, error) {
	l := c.in(0).List
	if l == nil {
		return listOf(c.in(2).Shape, -1), nil
	}
	return listOf(refine(l.Element, c.in(2).Shape), l.Length), nil
}

// pushBack is TensorListPushBack: (list, tensor).
func pushBack(c *Call) ([]Value, error) {
	l := c.in(0).List
	if l == nil {
		return listOf(c.in(1).Shape, -1), nil
	}
	return listOf(refine(l.Element, c.in(1).Shape), plus(l.Length, 1)), nil
}

func listLength(c *Call) ([]Value, error) {
	out := whole([]int64{}, nil)
	if n := c.length(); n >= 0 {
		out.Ints = []int64{n}
	}
	return []Value{out}, nil
}
