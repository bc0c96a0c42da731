package text

import (
	"math"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// through returns a vector after the layers of text.dense.
func through(layers []bundle.Layer, vector []float32) []float32 {
	for i := range layers {
		vector = apply(&layers[i], vector)
	}
	return vector
}

// apply returns a vector after one layer.
func apply(l *bundle.Layer, vector []float32) []float32 {
	out := make([]float32, l.Out)
	for i := range out {
		sum := dot(l.Weight[i*l.In:(i+1)*l.In], vector)
		if len(l.Bias) > 0 {
			sum += l.Bias[i]
		}
		if l.Tanh {
			sum = float32(math.Tanh(float64(sum)))
		}
		out[i] = sum
	}
	return out
}

// dot is the sum of the products of two vectors of one length. It has four sums, which a processor adds to at the
// same time, and which lose less of small products than one.
func dot(a, b []float32) float32 {
	var sums [4]float32
	b = b[:len(a)]
	i := 0
	for ; i+4 <= len(a); i += 4 {
		sums[0] += a[i] * b[i]
		sums[1] += a[i+1] * b[i+1]
		sums[2] += a[i+2] * b[i+2]
		sums[3] += a[i+3] * b[i+3]
	}
	for ; i < len(a); i++ {
		sums[0] += a[i] * b[i]
	}
	return (sums[0] + sums[1]) + (sums[2] + sums[3])
}
