package shape

import "github.com/faas-infer/faas-infer/model/onnxpb"

// foldUnary holds the unary operators through which contents are followed. Sizes
// that were cast to float are whole numbers, so rounding does nothing.
var foldUnary = map[string]func(int64) int64{
	"Neg":   func(v int64) int64 { return -v },
	"Abs":   func(v int64) int64 { return max(v, -v) },
	"Not":   func(v int64) int64 { return truth(v == 0) },
	"Floor": func(v int64) int64 { return v },
	"Ceil":  func(v int64) int64 { return v },
	"Round": func(v int64) int64 { return v },
}

func mapInts(ints []int64, f func(int64) int64) []int64 {
	out := make([]int64, len(ints))
	for i, v := range ints {
		out[i] = v
		if v != Unknown {
			out[i] = f(v)
		}
	}
	return out
}

// foldBinary follows the contents through an element-wise operator of two inputs
// with n output elements. It returns nil if it cannot.
func foldBinary(kind string, a, b Value, n int64) []int64 {
	if a.Ints == nil || b.Ints == nil || n < 0 || n > maxInts || len(a.Shape) > 1 || len(b.Shape) > 1 {
		return nil
	}
	out := make([]int64, n)
	for i := range n {
		x, y := pick(a.Ints, i, n), pick(b.Ints, i, n)
		if x == Unknown || y == Unknown {
			out[i] = Unknown
			continue
		}
		v, ok := fold(kind, x, y)
		if !ok {
			return nil
		}
		if kind == "Div" && a.Elem == onnxpb.TensorProto_FLOAT && x%y != 0 {
			v = Unknown // a fraction
		}
		out[i] = v
	}
	return out
}

// pick is element i of a tensor of n elements, or the one element of a tensor that
// is broadcast to n. It is Unknown for any other number of elements.
func pick(ints []int64, i, n int64) int64 {
	switch {
	case int64(len(ints)) == n:
		return ints[i]
	case len(ints) == 1:
		return ints[0]
	}
	return Unknown
}

func fold(kind string, x, y int64) (int64, bool) {
	switch kind {
	case "Add":
		return x + y, true
	case "Sub":
		return x - y, true
	case "Mul":
		return x * y, true
	case "Div":
		if y == 0 {
			return 0, false
		}
		return x / y, true
	case "Mod":
		if y == 0 {
			return 0, false
		}
		return ((x % y) + y) % y, true
	case "Max":
		return max(x, y), true
	case "Min":
		return min(x, y), true
	}
	return compare(kind, x, y)
}

func compare(kind string, x, y int64) (int64, bool) {
	switch kind {
	case "Equal":
		return truth(x == y), true
	case "Greater":
		return truth(x > y), true
	case "GreaterOrEqual":
		return truth(x >= y), true
	case "Less":
		return truth(x < y), true
	case "LessOrEqual":
		return truth(x <= y), true
	case "And":
		return truth(x != 0 && y != 0), true
	case "Or":
		return truth(x != 0 || y != 0), true
	}
	return 0, false
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

var foldedReductions = map[string]func(x, y int64) int64{
	"ReduceProd": func(x, y int64) int64 { return x * y },
	"ReduceSum":  func(x, y int64) int64 { return x + y },
	"ReduceMax":  func(x, y int64) int64 { return max(x, y) },
	"ReduceMin":  func(x, y int64) int64 { return min(x, y) },
}

// foldReduce follows the contents of a vector or scalar through a reduction.
func foldReduce(kind string, ints []int64) []int64 {
	f := foldedReductions[kind]
	if f == nil || len(ints) == 0 {
		return nil
	}
	out := ints[0]
	for _, v := range ints[1:] {
		if out == Unknown || v == Unknown {
			return []int64{Unknown}
		}
		out = f(out, v)
	}
	return []int64{out}
}
