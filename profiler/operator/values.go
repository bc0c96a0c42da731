package operator

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// period is the number of values before they repeat. It is prime, so rows differ.
const period = 65521

// filling describes the values of a tensor.
type filling struct {
	elem  tensor.Type
	kind  kind
	bound int64   // upper bound of whole numbers, which stay below it; 0 for none
	width float64 // standard deviation of floats
	row   int64   // the last dimension, for masks
}

// maxBytes is the maximum size of one weight or input. The limit of a protobuf message
// is twice that.
const maxBytes = 1 << 30

// fill makes a tensor's elements, the same for the same generator.
func (f filling) fill(shape []int64, rng *rand.Rand) ([]byte, error) {
	n, err := tensor.Elements(shape)
	if err != nil {
		return nil, err
	}
	size := int64(f.elem.Size())
	if size == 0 {
		return nil, fmt.Errorf("no values can be made for its element type")
	}
	if n > maxBytes/size {
		return nil, fmt.Errorf("%s %v takes more than %d MiB", f.elem, shape, maxBytes>>20)
	}
	block := min(n, period)
	if f.kind == mask && f.row > 1 {
		block = min(n, max(1, period/f.row)*f.row)
	}
	data := make([]byte, 0, n*size)
	next := f.values(rng)
	for range block {
		data = f.elem.Append(data, next())
	}
	for have := int64(len(data)); have > 0 && have < n*size; have = int64(len(data)) {
		data = append(data, data[:min(have, n*size-have)]...)
	}
	return data, nil
}

// values returns a generator of elements. Floats are neither zero nor close to it,
// because the time differs for denormal numbers, and for zeros that make more zeros.
func (f filling) values(rng *rand.Rand) func() float64 {
	whole := f.elem != tensor.FP16 && f.elem != tensor.BF16 && f.elem != tensor.FP32 && f.elem != tensor.FP64
	switch {
	case f.kind == mask || f.elem == tensor.Bool:
		return model.Mask(max(1, f.row), rng)
	case f.kind == length && f.bound > 0:
		return func() float64 { return float64(f.bound - 1) }
	case f.kind == length:
		return model.Mask(max(1, f.row), rng)
	case f.kind == index || whole && f.bound > 0:
		return func() float64 { return float64(rng.Int64N(max(1, f.bound))) }
	case f.kind == zero:
		return func() float64 { return middle(f.elem) }
	case whole:
		return f.wholes(rng)
	case f.kind == scale:
		return func() float64 { return 0.01 + 0.02*rng.Float64() }
	case f.kind == positive:
		return func() float64 { return 0.5 + rng.Float64() }
	case f.kind == unit:
		return func() float64 { return 0.99 * (2*rng.Float64() - 1) }
	}
	const least = 1e-3
	return func() float64 {
		v := rng.NormFloat64()
		if math.Abs(v) < least {
			v = math.Copysign(least, v)
		}
		return v * f.width
	}
}

// wholes returns a generator of whole numbers: quantised values around the type's
// middle, or small numbers.
func (f filling) wholes(rng *rand.Rand) func() float64 {
	if f.kind == positive {
		return func() float64 { return float64(1 + rng.Int64N(16)) }
	}
	if f.elem.Size() > 1 {
		return func() float64 { return float64(rng.Int64N(128)) }
	}
	return func() float64 {
		return math.Round(min(max(30*rng.NormFloat64(), -100), 100)) + middle(f.elem)
	}
}

// middle is the usual zero point.
func middle(t tensor.Type) float64 {
	switch t {
	case tensor.Uint8:
		return 128
	case tensor.Uint16:
		return 1 << 15
	}
	return 0
}

func appendWhole(b []byte, t tensor.Type, v int64) []byte {
	switch t {
	case tensor.FP16, tensor.BF16, tensor.FP32, tensor.FP64:
		return t.Append(b, float64(v))
	}
	var whole [8]byte
	binary.LittleEndian.PutUint64(whole[:], uint64(v))
	return append(b, whole[:t.Size()]...)
}
