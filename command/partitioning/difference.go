package partitioning

import (
	"encoding/binary"
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
		x, y := number(want.Type, got.Data[at:]), number(want.Type, want.Data[at:])
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

// number is the first element of data.
func number(t tensor.Type, data []byte) float64 {
	order := binary.LittleEndian
	switch t {
	case tensor.FP32:
		return float64(math.Float32frombits(order.Uint32(data)))
	case tensor.FP64:
		return math.Float64frombits(order.Uint64(data))
	case tensor.FP16:
		return half(order.Uint16(data))
	case tensor.Int64:
		return float64(int64(order.Uint64(data)))
	case tensor.Uint64:
		return float64(order.Uint64(data))
	case tensor.Int32:
		return float64(int32(order.Uint32(data)))
	case tensor.Uint32:
		return float64(order.Uint32(data))
	case tensor.Int16:
		return float64(int16(order.Uint16(data)))
	case tensor.Uint16:
		return float64(order.Uint16(data))
	case tensor.Int8:
		return float64(int8(data[0]))
	}
	return float64(data[0])
}

// half is a number of IEEE 754's binary16.
func half(bits uint16) float64 {
	sign := 1.0
	if bits>>15 == 1 {
		sign = -1
	}
	exponent, fraction := int(bits>>10&0x1f), float64(bits&0x3ff)
	switch exponent {
	case 0:
		return sign * fraction * 0x1p-24
	case 0x1f:
		if fraction > 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * (1 + fraction/1024) * math.Ldexp(1, exponent-15)
}
