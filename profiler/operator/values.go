package operator

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/faas-infer/faas-infer/model/onnxpb"
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
		data = appendElement(data, f.elem, next())
	}
	for have := int64(len(data)); have > 0 && have < n*size; have = int64(len(data)) {
		data = append(data, data[:min(have, n*size-have)]...)
	}
	return data, nil
}

// values returns a generator of elements. Floats are neither zero nor close to it,
// because the time differs for denormal numbers, and for zeros that make more zeros.
func (f filling) values(rng *rand.Rand) func() float64 {
	whole := f.elem != tensor.FP16 && f.elem != tensor.FP32 && f.elem != tensor.FP64
	switch {
	case f.kind == mask || f.elem == tensor.Bool:
		return f.mask(rng)
	case f.kind == length && f.bound > 0:
		return func() float64 { return float64(f.bound - 1) }
	case f.kind == length:
		return f.mask(rng)
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

// mask returns a generator of rows: at least one 1, then zeros, as for sentences shorter
// than the longest.
func (f filling) mask(rng *rand.Rand) func() float64 {
	row := max(1, f.row)
	at, ones := int64(0), int64(0)
	return func() float64 {
		if at == 0 {
			ones = 1 + rng.Int64N(row)
		}
		one := at < ones
		at = (at + 1) % row
		if one {
			return 1
		}
		return 0
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

func appendElement(b []byte, t tensor.Type, v float64) []byte {
	switch t {
	case tensor.FP64:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	case tensor.FP32:
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
	case tensor.FP16:
		return binary.LittleEndian.AppendUint16(b, half(v))
	}
	return appendWhole(b, t, int64(v))
}

func appendWhole(b []byte, t tensor.Type, v int64) []byte {
	switch t {
	case tensor.FP16, tensor.FP32, tensor.FP64:
		return appendElement(b, t, float64(v))
	}
	var whole [8]byte
	binary.LittleEndian.PutUint64(whole[:], uint64(v))
	return append(b, whole[:t.Size()]...)
}

// half is v as a float16, within the range of its normal numbers.
func half(v float64) uint16 {
	bits := math.Float32bits(float32(v))
	sign := uint16(bits >> 16 & 0x8000)
	exponent := int(bits>>23&0xff) - 127 + 15
	switch {
	case exponent < 1:
		return sign
	case exponent > 30:
		return sign | 0x7bff
	}
	return sign | uint16(exponent)<<10 | uint16(bits>>13&0x3ff)
}

// floats are the values of a small constant of floats in the model's own file, nil for
// any other tensor.
func floats(t *onnxpb.TensorProto) []float32 {
	if t.GetDataType() != int32(onnxpb.TensorProto_FLOAT) || len(t.GetRawData()) > 4*maxKept {
		return nil
	}
	if t.GetRawData() == nil {
		return t.GetFloatData()
	}
	var out []float32
	for b := t.GetRawData(); len(b) >= 4; b = b[4:] {
		out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return out
}
