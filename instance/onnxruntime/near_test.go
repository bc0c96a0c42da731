package onnxruntime

import (
	"math"
	"testing"
)

// Infinities are equal only with the same sign.
func TestNear(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		w, g float64
		want bool
	}{{inf, inf, true}, {inf, -inf, false}, {-inf, inf, false}, {nan, nan, true}, {nan, 1, false}, {inf, nan, false}, {1, 1 + tolerance/2, true}, {1, 2, false}} {
		if got := near(c.w, c.g); got != c.want {
			t.Errorf("near(%v, %v) = %v", c.w, c.g, got)
		}
	}
}
