package tensor

import (
	"encoding/binary"
	"math"
	"strconv"
)

// Number returns the first element of data, which is not a string.
func (t Type) Number(data []byte) float64 {
	little := binary.LittleEndian
	switch t {
	case FP32:
		return float64(math.Float32frombits(little.Uint32(data)))
	case FP64:
		return math.Float64frombits(little.Uint64(data))
	case FP16:
		return half(little.Uint16(data))
	case BF16:
		return float64(math.Float32frombits(uint32(little.Uint16(data)) << 16))
	case Int8:
		return float64(int8(data[0]))
	case Int16:
		return float64(int16(little.Uint16(data)))
	case Uint16:
		return float64(little.Uint16(data))
	case Int32:
		return float64(int32(little.Uint32(data)))
	case Uint32:
		return float64(little.Uint32(data))
	case Int64:
		return float64(int64(little.Uint64(data)))
	case Uint64:
		return float64(little.Uint64(data))
	}
	return float64(data[0])
}

// Append appends v as an element. Whole numbers are cut, and so is a bfloat16's fraction. A
// float16 keeps within its normal numbers and zero. A string holds the digits of the whole number:
// models parse such text as a number, or take it for any word.
func (t Type) Append(data []byte, v float64) []byte {
	little := binary.LittleEndian
	switch t {
	case FP64:
		return little.AppendUint64(data, math.Float64bits(v))
	case FP32:
		return little.AppendUint32(data, math.Float32bits(float32(v)))
	case FP16:
		return little.AppendUint16(data, toHalf(v))
	case BF16:
		return little.AppendUint16(data, uint16(math.Float32bits(float32(v))>>16))
	case Bytes:
		return AppendString(data, strconv.FormatInt(int64(v), 10))
	}
	var whole [8]byte
	little.PutUint64(whole[:], uint64(int64(v)))
	return append(data, whole[:t.Size()]...)
}

// AppendFloats appends the elements of a type's data to a slice.
func (t Type) AppendFloats(to []float32, data []byte) []float32 {
	size := t.Size()
	for ; len(data) >= size; data = data[size:] {
		if t == FP32 {
			to = append(to, math.Float32frombits(binary.LittleEndian.Uint32(data)))
		} else {
			to = append(to, float32(t.Number(data)))
		}
	}
	return to
}

// Narrow returns the elements of a 32-bit tensor in t, FP16 or BF16, from which they were
// widened: no digit is lost. A NaN stays one.
func (t Type) Narrow(wide []byte) []byte {
	out := make([]byte, 0, len(wide)/2)
	for ; len(wide) >= 4; wide = wide[4:] {
		bits := binary.LittleEndian.Uint32(wide)
		if t == FP16 {
			out = binary.LittleEndian.AppendUint16(out, exactHalf(bits))
		} else {
			out = binary.LittleEndian.AppendUint16(out, uint16(bits>>16))
		}
	}
	return out
}

// exactHalf is the float16 with the value of a float32 that was one.
func exactHalf(bits uint32) uint16 {
	sign, exponent, fraction := uint16(bits>>16&0x8000), int(bits>>23&0xff)-127, bits&0x7fffff
	switch {
	case exponent == 128 && fraction != 0:
		return sign | 0x7e00
	case exponent > 15:
		return sign | 0x7c00
	case exponent >= -14:
		return sign | uint16(exponent+15)<<10 | uint16(fraction>>13)
	case exponent >= -24: // Subnormal: for example 2^-24 is the fraction 1.
		return sign | uint16((fraction|0x800000)>>(-exponent-1))
	}
	return sign
}

// toHalf is v as a float16, within the range of its normal numbers.
func toHalf(v float64) uint16 {
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

// half decodes a float16: a sign bit, five bits of exponent and ten of fraction.
func half(bits uint16) float64 {
	sign, exponent, fraction := 1.0, int(bits>>10&31), float64(bits&1023)
	if bits>>15 == 1 {
		sign = -1
	}
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 31:
		if fraction != 0 {
			return math.NaN()
		}
		return sign * math.Inf(1)
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}
