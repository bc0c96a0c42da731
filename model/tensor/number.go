package tensor

import (
	"encoding/binary"
	"math"
)

// Number returns the first element of data.
func (t Type) Number(data []byte) float64 {
	little := binary.LittleEndian
	switch t {
	case FP32:
		return float64(math.Float32frombits(little.Uint32(data)))
	case FP64:
		return math.Float64frombits(little.Uint64(data))
	case FP16:
		return half(little.Uint16(data))
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
