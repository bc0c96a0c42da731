package tensor

import (
	"math"
	"testing"
)

func TestNumber(t *testing.T) {
	data := []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for of, want := range map[Type]float64{
		Bool: 254, Uint8: 254, Int8: -2, Int16: -2, Uint16: 65534, Int32: -2,
		Uint32: 1<<32 - 2, Int64: -2, Uint64: 1 << 64,
	} {
		if got := of.Number(data); got != want {
			t.Errorf("%s: %g, want %g", of, got, want)
		}
	}
	for bits, want := range map[uint16]float64{0x3c00: 1, 0xc000: -2, 0x3555: 0.333251953125, 1: math.Ldexp(1, -24), 0x7bff: 65504, 0x7c00: math.Inf(1)} {
		if got := half(bits); got != want {
			t.Errorf("%#x: %g, want %g", bits, got, want)
		}
	}
	if !math.IsNaN(half(0x7e00)) {
		t.Error("not a number is one")
	}
}
