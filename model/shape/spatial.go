package shape

import (
	"errors"
	"fmt"
)

// window describes how a convolution or pooling moves over its spatial dimensions.
type window struct {
	kernel, strides, dilations, before, after []int64
	auto                                      string
	ceil                                      bool
}

// window reads a node's window. kernel is the weight's shape, which counts if the
// node has no kernel_shape.
func (c *call) window(spatial int, kernel []int64) (window, error) {
	if k := c.ints("kernel_shape"); k != nil {
		kernel = k
	}
	w := window{
		kernel: kernel, auto: c.string("auto_pad"), ceil: c.int("ceil_mode", 0) != 0,
		strides: c.ints("strides"), dilations: c.ints("dilations"),
	}
	ones := make([]int64, spatial)
	for i := range ones {
		ones[i] = 1
	}
	if w.strides == nil {
		w.strides = ones
	}
	if w.dilations == nil {
		w.dilations = ones
	}
	pads := c.ints("pads")
	if pads == nil {
		pads = make([]int64, 2*spatial)
	}
	if len(w.kernel) != spatial || len(w.strides) != spatial || len(w.dilations) != spatial || len(pads) != 2*spatial {
		return w, fmt.Errorf("kernel %v, strides %v, dilations %v and pads %v are not for %d spatial dimensions", w.kernel, w.strides, w.dilations, pads, spatial)
	}
	w.before, w.after = pads[:spatial], pads[spatial:]
	for i := range spatial {
		const limit = 1 << 24
		for _, v := range []int64{w.kernel[i], w.strides[i], w.dilations[i]} {
			if v == 0 || v > limit || v < -1 {
				return w, fmt.Errorf("kernel %v, strides %v or dilations %v are not positive numbers below %d", w.kernel, w.strides, w.dilations, limit)
			}
		}
		if max(pads[i], -pads[i], pads[spatial+i], -pads[spatial+i]) > limit {
			return w, fmt.Errorf("pads %v are too large", pads)
		}
	}
	return w, nil
}

// size is the output's size along spatial dimension i for an input of size in.
func (w window) size(i int, in int64) (int64, error) {
	if in < 0 || w.kernel[i] < 0 {
		return -1, nil
	}
	stride := w.strides[i]
	switch w.auto {
	case "SAME_UPPER", "SAME_LOWER":
		return (in + stride - 1) / stride, nil
	}
	reach := in + w.before[i] + w.after[i] - (w.kernel[i]-1)*w.dilations[i] - 1
	if reach < 0 {
		return 0, fmt.Errorf("kernel %v does not fit into an input of size %d along spatial dimension %d", w.kernel, in, i)
	}
	if !w.ceil {
		return reach/stride + 1, nil
	}
	out := (reach+stride-1)/stride + 1
	if (out-1)*stride >= in+w.before[i] {
		out-- // A last window that begins in the padding at the end is left out.
	}
	return out, nil
}

// slide is the shape of a window's output: batch, channels, spatial sizes.
func (w window) slide(x []int64, channels int64) ([]int64, error) {
	out := []int64{x[0], channels}
	for i, in := range x[2:] {
		size, err := w.size(i, in)
		if err != nil {
			return nil, err
		}
		out = append(out, size)
	}
	return out, nil
}

func conv(c *call) ([]Value, error) {
	x, w := c.in(0), c.in(1)
	if x.Shape == nil || w.Shape == nil {
		return []Value{x.of(nil)}, nil
	}
	if len(x.Shape) < 3 || len(w.Shape) != len(x.Shape) {
		return nil, fmt.Errorf("input %v and kernel %v are not of the same three or more dimensions", x.Shape, w.Shape)
	}
	groups := c.int("group", 1)
	if groups <= 0 {
		return nil, fmt.Errorf("group is %d; it must be at least 1", groups)
	}
	if in := x.Shape[1]; in >= 0 && w.Shape[1] >= 0 && in != times(w.Shape[1], groups) {
		return nil, fmt.Errorf("the kernel takes %d × %d channels, the input has %d", groups, w.Shape[1], in)
	}
	window, err := c.window(len(x.Shape)-2, w.Shape[2:])
	if err != nil {
		return nil, err
	}
	out, err := window.slide(x.Shape, w.Shape[0])
	return []Value{x.of(out)}, err
}

func convCost(c *call, out []Value) int64 {
	w := c.in(1).Shape
	if len(w) < 2 {
		return -1
	}
	return times(out[0].Elements(), product(w[1:]))
}

func convTranspose(c *call) ([]Value, error) {
	x, w := c.in(0), c.in(1)
	if x.Shape == nil || w.Shape == nil {
		return []Value{x.of(nil)}, nil
	}
	if len(x.Shape) < 3 || len(w.Shape) != len(x.Shape) {
		return nil, fmt.Errorf("input %v and kernel %v are not of the same three or more dimensions", x.Shape, w.Shape)
	}
	spatial := len(x.Shape) - 2
	win, err := c.window(spatial, w.Shape[2:])
	if err != nil {
		return nil, err
	}
	sizes, extra := c.ints("output_shape"), c.ints("output_padding")
	if sizes != nil && len(sizes) != spatial || extra != nil && len(extra) != spatial {
		return nil, errors.New("output_shape or output_padding does not have one value per spatial dimension")
	}
	out := []int64{x.Shape[0], times(w.Shape[1], c.int("group", 1))}
	for i, in := range x.Shape[2:] {
		size := int64(-1)
		switch {
		case sizes != nil:
			size = sizes[i]
		case in < 0 || win.kernel[i] < 0:
		case win.auto == "SAME_UPPER" || win.auto == "SAME_LOWER":
			size = times(in, win.strides[i])
		default:
			size = times(in-1, win.strides[i]) + (win.kernel[i]-1)*win.dilations[i] + 1 - win.before[i] - win.after[i]
			if extra != nil {
				size += extra[i]
			}
		}
		out = append(out, max(size, -1))
	}
	return []Value{x.of(out)}, nil
}

func convTransposeCost(c *call, _ []Value) int64 {
	w := c.in(1).Shape
	if len(w) < 2 {
		return -1
	}
	return times(c.in(0).Elements(), product(w[1:]))
}

func pool(c *call) ([]Value, error) {
	x := c.in(0)
	if x.Shape == nil {
		return []Value{x.of(nil)}, nil
	}
	if len(x.Shape) < 3 {
		return nil, fmt.Errorf("input %v has no spatial dimension", x.Shape)
	}
	window, err := c.window(len(x.Shape)-2, nil)
	if err != nil {
		return nil, err
	}
	out, err := window.slide(x.Shape, x.Shape[1])
	return []Value{x.of(out), {Elem: int64Type, Shape: out}}, err
}

func poolCost(c *call, out []Value) int64 {
	kernel := c.ints("kernel_shape")
	if kernel == nil {
		return -1
	}
	return times(out[0].Elements(), product(kernel))
}

func globalPool(c *call) ([]Value, error) {
	x := c.in(0)
	if x.Shape == nil {
		return []Value{x.of(nil)}, nil
	}
	if len(x.Shape) < 3 {
		return nil, fmt.Errorf("input %v has no spatial dimension", x.Shape)
	}
	out := append([]int64{}, x.Shape...)
	for i := 2; i < len(out); i++ {
		out[i] = 1
	}
	return []Value{x.of(out)}, nil
}
