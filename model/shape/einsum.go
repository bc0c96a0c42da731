package shape

import (
	"fmt"
	"slices"
	"strings"
)

// einsum infers Einstein's summation. Letters name dimensions, and the operator
// sums over letters that the output does not have. The output of an equation with
// an ellipsis is unknown.
func einsum(c *call) ([]Value, error) {
	x := c.in(0)
	terms, result, sizes, err := c.equation()
	if err != nil {
		return nil, err
	}
	if terms == nil {
		return []Value{x.of(nil)}, nil
	}
	out := []int64{}
	for _, letter := range result {
		size, ok := sizes[letter]
		if !ok {
			return nil, fmt.Errorf("equation %q: no input has the output's %q", c.string("equation"), letter)
		}
		out = append(out, size)
	}
	return []Value{x.of(out)}, nil
}

// einsumCost is one multiply-add for every combination of all letters' values.
func einsumCost(c *call, _ []Value) int64 {
	terms, _, sizes, err := c.equation()
	if err != nil || terms == nil {
		return -1
	}
	n := int64(1)
	for _, size := range sizes {
		if size == 0 {
			return 0
		}
		n = times(n, size)
	}
	return n
}

// equation reads Einsum's attribute: the letters of each input and of the output,
// and each letter's size. terms is nil for an equation with an ellipsis and for
// unknown shapes.
func (c *call) equation() (terms []string, result string, sizes map[rune]int64, err error) {
	text := strings.ReplaceAll(c.string("equation"), " ", "")
	if text == "" || strings.Contains(text, ".") {
		return nil, "", nil, nil
	}
	left, result, explicit := strings.Cut(text, "->")
	terms = strings.Split(left, ",")
	if len(terms) != len(c.inputs) {
		return nil, "", nil, fmt.Errorf("equation %q is for %d inputs, not %d", text, len(terms), len(c.inputs))
	}
	sizes = make(map[rune]int64)
	for i, term := range terms {
		shape, letters := c.in(i).Shape, []rune(term)
		if shape == nil {
			return nil, "", nil, nil
		}
		if len(letters) != len(shape) {
			return nil, "", nil, fmt.Errorf("equation %q: input %v is not %q", text, shape, term)
		}
		for j, letter := range letters {
			size, seen := sizes[letter]
			if seen && size > 1 && shape[j] > 1 && size != shape[j] {
				return nil, "", nil, fmt.Errorf("equation %q: %q is %d and %d", text, letter, size, shape[j])
			}
			if !seen || size == 1 || size < 0 && shape[j] > 1 {
				sizes[letter] = shape[j]
			}
		}
	}
	if !explicit {
		result = once(left)
	}
	return terms, result, sizes, nil
}

// once returns the letters that occur once, in order: the output of an equation
// that does not give one.
func once(left string) string {
	var letters []rune
	for _, letter := range strings.ReplaceAll(left, ",", "") {
		if strings.Count(left, string(letter)) == 1 {
			letters = append(letters, letter)
		}
	}
	slices.Sort(letters)
	return string(letters)
}
