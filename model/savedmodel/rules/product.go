package rules

import (
	"fmt"
	"strings"
)

// einsum is a sum of products by an equation, as "ab,bc->ac".
type einsum struct {
	sizes map[rune]int64
	// dots are the dimensions that "..." stands for.
	dots   []int64
	output string
	// known is false if a shape is not.
	known bool
}

// einsumOf reads a node's equation with its inputs' shapes.
func einsumOf(c *Call) (*einsum, error) {
	left, right, ok := strings.Cut(strings.ReplaceAll(c.text("equation"), " ", ""), "->")
	terms := strings.Split(left, ",")
	if !ok || len(terms) != len(c.Inputs) {
		return nil, fmt.Errorf("equation %q is not for %d inputs", c.text("equation"), len(c.Inputs))
	}
	e := &einsum{sizes: make(map[rune]int64), dots: []int64{}, output: right, known: true}
	for i, term := range terms {
		dims := c.in(i).Shape
		if dims == nil {
			e.known = false
			continue
		}
		if err := e.term(term, dims); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (e *einsum) term(term string, dims []int64) error {
	before, after, dotted := strings.Cut(term, "...")
	extra := len(dims) - len([]rune(before)) - len([]rune(after))
	if extra < 0 || extra > 0 && !dotted {
		return fmt.Errorf("term %q does not fit input %v", term, dims)
	}
	at := 0
	for _, label := range before {
		if err := e.label(label, dims[at]); err != nil {
			return err
		}
		at++
	}
	if len(e.dots) < extra {
		e.dots = append(onesOf(extra-len(e.dots)), e.dots...)
	}
	for i := range extra {
		if d := &e.dots[len(e.dots)-extra+i]; *d == 1 {
			*d = dims[at+i]
		}
	}
	at += extra
	for _, label := range after {
		if err := e.label(label, dims[at]); err != nil {
			return err
		}
		at++
	}
	return nil
}

func onesOf(n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = 1
	}
	return out
}

func (e *einsum) label(label rune, d int64) error {
	was, seen := e.sizes[label]
	switch {
	case !seen || was < 0 || was == 1:
		e.sizes[label] = d
	case d >= 0 && d != was && d != 1:
		return fmt.Errorf("%q is %d and %d", label, was, d)
	}
	return nil
}

func einsumShape(c *Call) ([]Value, error) {
	e, err := einsumOf(c)
	if err != nil {
		return nil, err
	}
	if !e.known {
		return of(c.in(0), nil), nil
	}
	before, after, dotted := strings.Cut(e.output, "...")
	dims := []int64{}
	add := func(labels string) {
		for _, label := range labels {
			d, ok := e.sizes[label]
			if !ok {
				err = fmt.Errorf("no input has %q", label)
			}
			dims = append(dims, d)
		}
	}
	add(before)
	if dotted {
		dims = append(dims, e.dots...)
	}
	add(after)
	if err != nil {
		return nil, err
	}
	return of(c.in(0), dims), nil
}

// einsumCost is one multiply-add for each combination of the indices; moving
// data about is free.
func einsumCost(c *Call, out []Value) int64 {
	e, err := einsumOf(c)
	if err != nil || !e.known {
		return -1
	}
	n := product(e.dots)
	for _, d := range e.sizes {
		n = times(n, d)
	}
	if len(c.Inputs) == 1 && n == out[0].Elements() {
		return 0
	}
	return n
}

// recurrent are the gates of CudnnRNN's modes.
var recurrent = map[string]int64{"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}

// cudnnRNN is a recurrent network in one node: (input, hidden, ...) with the
// hidden state [layers × directions, batch, cells].
func cudnnRNN(c *Call) ([]Value, error) {
	x, h := c.in(0), c.in(1)
	if x.Shape == nil || h.Shape == nil {
		return nil, nil
	}
	if len(x.Shape) != 3 || len(h.Shape) != 3 {
		return nil, fmt.Errorf("input %v and state %v do not have three dimensions", x.Shape, h.Shape)
	}
	cells := times(h.Shape[2], c.directions())
	out := of(x, []int64{x.Shape[0], x.Shape[1], cells})
	return append(out, of(x, h.Shape)[0], of(x, h.Shape)[0]), nil
}

func (c *Call) directions() int64 {
	if c.text("direction") == "bidirectional" {
		return 2
	}
	return 1
}

func cudnnCost(c *Call, _ []Value) int64 {
	x, h := c.in(0).Shape, c.in(1).Shape
	mode := c.text("rnn_mode")
	if mode == "" {
		mode = "lstm"
	}
	gates := recurrent[mode]
	if len(x) != 3 || len(h) != 3 || gates == 0 || h[0] < 0 {
		return -1
	}
	d := c.directions()
	cell := times(gates, h[2])
	first := times(d, times(cell, plus(x[2], h[2])))
	above := times(max(h[0]-d, 0), times(cell, plus(times(d, h[2]), h[2])))
	return times(times(x[0], x[1]), plus(first, above))
}
