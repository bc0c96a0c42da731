package regression

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The weights satisfy the conditions of a constrained minimum (Karush, Kuhn and
// Tucker): none is negative, the gradient vanishes where a weight is above 0,
// and points outwards where it is 0.
func FuzzSolve(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 9))
		scale := vector{}
		for i := range scale {
			scale[i] = math.Pow(10, float64(r.IntN(13)-6))
		}
		var s system
		yy := 0.0
		for range 1 + r.IntN(40) {
			var x vector
			for i := range x {
				x[i] = r.ExpFloat64() * scale[i]
			}
			y := r.NormFloat64()
			s.add(x, y)
			yy += y * y
		}
		w := s.solve()
		for i := range w {
			gradient := s.products[i] - s.squares[i].dot(w) // the direction of descent
			size := math.Sqrt(s.squares[i][i] * yy)
			if w[i] < 0 || w[i] > 0 && math.Abs(gradient) > 1e-4*size || w[i] == 0 && gradient > 1e-4*size {
				t.Fatalf("weight %d is %v with gradient %v of %v: %v", i, w[i], gradient, size, w)
			}
		}
	})
}

func TestSolveNothing(t *testing.T) {
	if w := (&system{}).solve(); w != (vector{}) {
		t.Errorf("of no observations: %v", w)
	}
}
