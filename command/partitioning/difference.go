package partitioning

import (
	"encoding/binary"
	"math"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// Difference counts the float32 elements that differ, and returns the largest difference
// over the largest element.
func Difference(got, want []tensor.Tensor) (differ int, most float64) {
	for i := range want {
		largest, off := 0.0, 0.0
		a, b := got[i].Data, want[i].Data
		if want[i].Type != tensor.FP32 || len(a) != len(b) {
			if string(a) != string(b) {
				return 1, math.Inf(1)
			}
			continue
		}
		for at := 0; at+4 <= len(b); at += 4 {
			x := float64(math.Float32frombits(binary.LittleEndian.Uint32(a[at:])))
			y := float64(math.Float32frombits(binary.LittleEndian.Uint32(b[at:])))
			largest = max(largest, math.Abs(y))
			if x != y {
				differ++
				off = max(off, math.Abs(x-y))
			}
			if math.IsNaN(x) != math.IsNaN(y) {
				off = math.Inf(1)
			}
		}
		if off > 0 {
			most = max(most, off/largest)
		}
	}
	return differ, most
}
