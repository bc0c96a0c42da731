package rules

import (
	"fmt"
	"strings"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/shape"
)

// layout is where an image's channels are.
type layout struct {
	spatial int
	// first: before the spatial dimensions (NCHW), not behind them (NHWC).
	first bool
}

func (c *Call) layout(spatial int) layout {
	return layout{spatial, strings.HasPrefix(c.text("data_format"), "NC")}
}

// channels is the place of the channels among the dimensions.
func (l layout) channels() int {
	if l.first {
		return 1
	}
	return l.spatial + 1
}

// onnx is an image with its channels first.
func (l layout) onnx(v Value) (shape.Value, error) {
	rank := l.spatial + 2
	if v.Shape != nil && len(v.Shape) != rank {
		return v.Value, fmt.Errorf("input %v does not have %d dimensions", v.Shape, rank)
	}
	order := []int{0, l.channels()}
	for i := range l.spatial {
		order = append(order, l.at(i))
	}
	return shape.Value{Elem: v.Elem, Shape: permuted(v.Shape, order)}, nil
}

// back is the order that onnx turned around.
func (l layout) back() []int {
	order := make([]int, l.spatial+2)
	order[l.channels()] = 1
	for i := range l.spatial {
		order[l.at(i)] = i + 2
	}
	return order
}

// at is the place of spatial dimension i.
func (l layout) at(i int) int {
	if l.first {
		return i + 2
	}
	return i + 1
}

// spread picks the spatial dimensions of an attribute that has all of them; nil
// if there is no such attribute.
func (l layout) spread(c *Call, name string) ([]int64, error) {
	all := c.list(name)
	if all == nil {
		return nil, nil
	}
	if len(all) != l.spatial+2 {
		return nil, fmt.Errorf("%s %v are not for %d dimensions", name, all, l.spatial+2)
	}
	var out []int64
	for i := range l.spatial {
		out = append(out, all[l.at(i)])
	}
	return out, nil
}

// window is how a convolution or pooling moves, as ONNX writes it.
func (l layout) window(c *Call, names map[string]string) ([]*onnxpb.AttributeProto, error) {
	var attributes []*onnxpb.AttributeProto
	for theirs, ours := range names {
		values, err := l.spread(c, theirs)
		if err != nil {
			return nil, err
		}
		if values != nil {
			attributes = append(attributes, withInts(ours, values))
		}
	}
	switch padding := c.text("padding"); padding {
	case "SAME":
		return append(attributes, withText("auto_pad", "SAME_UPPER")), nil
	case "EXPLICIT":
		pads := c.list("explicit_paddings")
		if len(pads) != 2*(l.spatial+2) {
			return nil, fmt.Errorf("explicit_paddings %v are not for %d dimensions", pads, l.spatial+2)
		}
		var before, after []int64
		for i := range l.spatial {
			before, after = append(before, pads[2*l.at(i)]), append(after, pads[2*l.at(i)+1])
		}
		return append(attributes, withInts("pads", append(before, after...))), nil
	case "VALID":
		return attributes, nil
	default:
		return nil, fmt.Errorf("padding %q is not SAME, VALID or EXPLICIT", padding)
	}
}

var convolving = map[string]string{"strides": "strides", "dilations": "dilations"}

// conv is a convolution; its kernel is [sizes..., in, out], or for each channel
// alone [sizes..., in, times].
func conv(spatial int, depthwise bool) translation {
	return func(c *Call) (*twin, error) {
		l := c.layout(spatial)
		x, err := l.onnx(c.in(0))
		if err != nil {
			return nil, err
		}
		w := c.in(1).Shape
		if x.Shape == nil || w == nil {
			return nil, nil
		}
		if len(w) != spatial+2 {
			return nil, fmt.Errorf("kernel %v does not have %d dimensions", w, spatial+2)
		}
		in, out, groups := w[spatial], w[spatial+1], int64(1)
		switch {
		case depthwise:
			groups, in, out = max(in, 1), 1, times(in, out)
		case in > 0 && x.Shape[1] > 0 && x.Shape[1]%in == 0:
			groups = x.Shape[1] / in
		}
		attributes, err := l.window(c, convolving)
		if err != nil {
			return nil, err
		}
		kernel := shape.Value{Shape: append([]int64{out, in}, w[:spatial]...)}
		t := newTwin("Conv", []shape.Value{x, kernel}, append(attributes, withInt("group", groups))...)
		t.back = l.back()
		return t, nil
	}
}

func pool(op string, spatial int) translation {
	return func(c *Call) (*twin, error) {
		l := c.layout(spatial)
		x, err := l.onnx(c.in(0))
		if x.Shape == nil || err != nil {
			return nil, err
		}
		attributes, err := l.window(c, map[string]string{"strides": "strides", "ksize": "kernel_shape"})
		if err != nil {
			return nil, err
		}
		t := newTwin(op, []shape.Value{x}, attributes...)
		t.back = l.back()
		return t, nil
	}
}

// blocks is SpaceToDepth and DepthToSpace.
func blocks(op string) translation {
	return func(c *Call) (*twin, error) {
		l := c.layout(2)
		x, err := l.onnx(c.in(0))
		if x.Shape == nil || err != nil {
			return nil, err
		}
		t := newTwin(op, []shape.Value{x}, withInt("blocksize", c.int("block_size")))
		t.back = l.back()
		return t, nil
	}
}

// convBack is a convolution's gradient for its input, which is what a transposed
// convolution is: (sizes, kernel [sizes..., out, in], x).
func convBack(spatial int) func(*Call) ([]Value, error) {
	return func(c *Call) ([]Value, error) {
		x, rank := c.in(2), spatial+2
		if x.Shape != nil && len(x.Shape) != rank {
			return nil, fmt.Errorf("input %v does not have %d dimensions", x.Shape, rank)
		}
		dims := dimensions(c.in(0))
		if dims == nil {
			dims = unknown(rank)
		}
		if len(dims) != rank {
			return nil, fmt.Errorf("sizes %v are not %d", dims, rank)
		}
		return of(x, dims), nil
	}
}

func convBackCost(c *Call, _ []Value) int64 {
	w := c.in(1).Shape
	if len(w) == 0 {
		return -1
	}
	return times(product(c.in(2).Shape), product(w[:len(w)-1]))
}

// resize makes images of the size in the second input.
func resize(c *Call) ([]Value, error) {
	x, size := c.in(0), dimensions(c.in(1))
	if x.Shape == nil {
		return of(x, nil), nil
	}
	if len(x.Shape) != 4 || size != nil && len(size) != 2 {
		return nil, fmt.Errorf("input %v and size %v are not those of images", x.Shape, size)
	}
	if size == nil {
		size = unknown(2)
	}
	return of(x, []int64{x.Shape[0], size[0], size[1], x.Shape[3]}), nil
}

// batchNorm gives the image and statistics of its channels.
func batchNorm(c *Call) ([]Value, error) {
	x, scale := c.in(0), c.in(1)
	out := of(x, x.Shape)
	for len(out) < 5 {
		out = append(out, of(scale, scale.Shape)...)
	}
	return out, nil
}

// spaceToBatch moves blocks between the batch and the dimensions behind it.
func spaceToBatch(back bool) func(*Call) ([]Value, error) {
	return func(c *Call) ([]Value, error) {
		x, block, edges := c.in(0), c.ints(1), c.ints(2)
		if x.Shape == nil {
			return of(x, nil), nil
		}
		if block == nil || edges == nil {
			return of(x, unknown(len(x.Shape))), nil
		}
		if len(edges) != 2*len(block) || len(block) >= len(x.Shape) {
			return nil, fmt.Errorf("blocks %v and edges %v do not fit input %v", block, edges, x.Shape)
		}
		dims := append([]int64{}, x.Shape...)
		for i, b := range block {
			if b < 1 || b > 1<<20 || min(edges[2*i], edges[2*i+1]) < 0 {
				return nil, fmt.Errorf("blocks %v or edges %v are not positive", block, edges)
			}
			edge := plus(edges[2*i], edges[2*i+1])
			if back {
				dims[0] = divided(dims[0], b)
				dims[i+1] = max(times(dims[i+1], b)-edge, min(dims[i+1], 0))
			} else {
				dims[0] = times(dims[0], b)
				dims[i+1] = divided(plus(dims[i+1], edge), b)
			}
		}
		return of(x, dims), nil
	}
}

func divided(n, by int64) int64 {
	if n < 0 {
		return -1
	}
	return n / by
}
