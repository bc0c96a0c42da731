package partitioning

import (
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// Difference counts the elements that differ between two answers, and returns the largest
// difference over the largest element of its tensor. It is infinite if a tensor has another
// type or shape, or if one of two elements is not finite and the other is another.
func Difference(got, want []tensor.Tensor) (differ int, most float64) {
	if len(got) != len(want) {
		return max(len(got), len(want)), math.Inf(1)
	}
	for i, w := range want {
		g := got[i]
		if g.Type != w.Type || !slices.Equal(g.Shape, w.Shape) || len(g.Data) != len(w.Data) {
			return differ + 1, math.Inf(1)
		}
		n, off := differenceOf(g, w)
		differ, most = differ+n, max(most, off)
	}
	return differ, most
}

func differenceOf(got, want tensor.Tensor) (differ int, most float64) {
	largest, off := 0.0, 0.0
	size := want.Type.Size()
	for at := 0; at+size <= len(want.Data); at += size {
		x, y := want.Type.Number(got.Data[at:]), want.Type.Number(want.Data[at:])
		finite := !math.IsNaN(x-y) && !math.IsInf(x-y, 0)
		switch {
		case x == y || math.IsNaN(x) && math.IsNaN(y):
		case !finite:
			differ++
			off = math.Inf(1)
		default:
			differ++
			off = max(off, math.Abs(x-y))
		}
		if !math.IsNaN(y) && !math.IsInf(y, 0) {
			largest = max(largest, math.Abs(y))
		}
	}
	if off == 0 || math.IsInf(off, 1) {
		return differ, off
	}
	return differ, off / largest
}
