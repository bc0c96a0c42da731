package shape

import (
	"fmt"
	"math/bits"
	"slices"
)

// gridSample reads an image at the points of a grid.
func gridSample(c *call) ([]Value, error) {
	x, grid := c.in(0), c.in(1).Shape
	if x.Shape == nil || grid == nil {
		return []Value{x.of(unknownLike(x.Shape))}, nil
	}
	if len(x.Shape) < 3 || len(grid) != len(x.Shape) {
		return nil, fmt.Errorf("grid %v does not fit input %v", grid, x.Shape)
	}
	return []Value{x.of(slices.Concat(x.Shape[:2], grid[1:len(grid)-1]))}, nil
}

// regions infers RoiAlign, which cuts an image of the same size out of each region.
func regions(c *call) ([]Value, error) {
	x, rois := c.in(0), c.in(1).Shape
	if x.Shape == nil || rois == nil {
		return []Value{x.of(unknown(4))}, nil
	}
	if len(x.Shape) != 4 || len(rois) != 2 {
		return nil, fmt.Errorf("regions %v of input %v", rois, x.Shape)
	}
	height, width := c.int("output_height", 1), c.int("output_width", 1)
	return []Value{x.of([]int64{rois[0], x.Shape[1], max(height, -1), max(width, -1)})}, nil
}

// regionsCost counts four neighbours for each sample. If sampling_ratio is 0, ONNX
// Runtime chooses the number of samples; the cost counts one.
func regionsCost(c *call, out []Value) int64 {
	samples := max(c.int("sampling_ratio", 0), 1)
	return times(out[0].Elements(), times(4, times(samples, samples)))
}

// cropAndResize infers com.microsoft's CropAndResize. The size is the content of
// input 3.
func cropAndResize(c *call) ([]Value, error) {
	x, rois, size := c.in(0), c.in(1).Shape, c.in(3).Ints
	if x.Shape == nil || rois == nil || len(size) != 2 {
		return []Value{x.of(unknown(4))}, nil
	}
	if len(x.Shape) != 4 || len(rois) != 2 {
		return nil, fmt.Errorf("regions %v of input %v", rois, x.Shape)
	}
	return []Value{x.of([]int64{rois[0], x.Shape[1], max(size[0], -1), max(size[1], -1)})}, nil
}

// suppression infers NonMaxSuppression. The number of boxes that it keeps depends
// on the data.
func suppression(*call) ([]Value, error) {
	return []Value{{Elem: int64Type, Shape: []int64{-1, 3}}}, nil
}

func compress(c *call) ([]Value, error) {
	x := c.in(0)
	if _, ok := c.attributes["axis"]; !ok || x.Shape == nil {
		if ok {
			return []Value{x.of(nil)}, nil
		}
		return []Value{x.of([]int64{-1})}, nil
	}
	i, err := axis(c.int("axis", 0), len(x.Shape))
	if err != nil {
		return nil, err
	}
	out := slices.Clone(x.Shape)
	out[i] = -1
	return []Value{x.of(out)}, nil
}

// unfold infers com.microsoft's UnfoldTensor: windows along one dimension, with
// the window as a new last dimension.
func unfold(c *call) ([]Value, error) {
	x, size, step := c.in(0), c.int("size", 0), c.int("step", 1)
	if x.Shape == nil {
		return []Value{x.of(nil)}, nil
	}
	i, err := axis(c.int("dim", -1), len(x.Shape))
	if err != nil {
		return nil, err
	}
	if size < 1 || step < 1 || x.Shape[i] >= 0 && x.Shape[i] < size {
		return nil, fmt.Errorf("windows of %d in steps of %d do not fit dimension %d of input %v", size, step, i, x.Shape)
	}
	out := append(slices.Clone(x.Shape), size)
	if out[i] >= 0 {
		out[i] = (out[i]-size)/step + 1
	}
	return []Value{x.of(out)}, nil
}

// expandDims infers com.microsoft's ExpandDims: Unsqueeze along one axis, the
// content of input 1.
func expandDims(c *call) ([]Value, error) {
	x, as := c.in(0), c.in(1).Ints
	if x.Shape == nil || len(as) != 1 || as[0] == Unknown {
		return []Value{{Elem: x.Elem, Ints: x.Ints}}, nil
	}
	i, err := axis(as[0], len(x.Shape)+1)
	if err != nil {
		return nil, err
	}
	return []Value{{Elem: x.Elem, Shape: slices.Insert(slices.Clone(x.Shape), i, 1), Ints: x.Ints}}, nil
}

// fourier infers DFT along one axis. Input 1 may give the length; a one-sided
// transform of a real signal has half of it.
func fourier(c *call) ([]Value, error) {
	x := c.in(0)
	if x.Shape == nil {
		return []Value{x.of(nil)}, nil
	}
	if len(x.Shape) < 2 {
		return nil, fmt.Errorf("input %v has no dimension for complex numbers", x.Shape)
	}
	at, known := c.fourierAxis()
	if !known {
		return []Value{x.of(unknown(len(x.Shape)))}, nil
	}
	i, err := axis(at, len(x.Shape))
	if err != nil {
		return nil, err
	}
	out := slices.Clone(x.Shape)
	if c.given(1) {
		out[i] = -1
		if n := c.in(1).Ints; len(n) == 1 {
			out[i] = max(n[0], -1)
		}
	}
	inverse := c.int("inverse", 0) != 0
	out[len(out)-1] = 2
	if c.int("onesided", 0) != 0 {
		switch {
		case inverse:
			out[len(out)-1] = 1
		case out[i] >= 0:
			out[i] = out[i]/2 + 1
		}
	}
	return []Value{x.of(out)}, nil
}

// fourierAxis is the axis of DFT: an attribute before opset 20, 1 by default, and
// input 2 since then, -2 by default.
func (c *call) fourierAxis() (int64, bool) {
	if a, ok := c.attributes["axis"]; ok {
		return a.GetI(), true
	}
	if c.given(2) {
		ints := c.in(2).Ints
		if len(ints) != 1 || ints[0] == Unknown {
			return 0, false
		}
		return ints[0], true
	}
	if c.opset < 20 {
		return 1, true
	}
	return -2, true
}

// shortFourier infers STFT, which transforms each frame of a signal.
func shortFourier(c *call) ([]Value, error) {
	x, step, length := c.in(0), c.in(1).Ints, c.in(3).Ints
	if w := c.in(2).Shape; len(length) != 1 && len(w) == 1 {
		length = w
	}
	if len(x.Shape) < 2 || len(step) != 1 || len(length) != 1 || step[0] < 1 || length[0] < 1 {
		return []Value{x.of(unknown(4))}, nil
	}
	if x.Shape[1] >= 0 && x.Shape[1] < length[0] {
		return nil, fmt.Errorf("a frame of %d is longer than the signal of %d", length[0], x.Shape[1])
	}
	out := []int64{x.Shape[0], -1, length[0], 2}
	if x.Shape[1] >= 0 {
		out[1] = (x.Shape[1]-length[0])/step[0] + 1
	}
	if c.int("onesided", 1) != 0 {
		out[2] = length[0]/2 + 1
	}
	return []Value{x.of(out)}, nil
}

// fourierCost is the cost of a fast transform: elements times the logarithm of
// the longest side.
func fourierCost(_ *call, out []Value) int64 {
	n := out[0].Elements()
	if n <= 0 {
		return n
	}
	return times(n, int64(bits.Len64(uint64(slices.Max(out[0].Shape)))))
}
