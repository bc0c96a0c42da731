package tensor

import (
	"math/big"
	"slices"
	"testing"
)

func TestSizes(t *testing.T) {
	for size, types := range map[int][]Type{
		1: {Bool, Uint8, Int8}, 2: {Int16, Uint16, FP16}, 4: {Int32, Uint32, FP32}, 8: {Int64, Uint64, FP64}, 0: {"", "BYTES", "fp32"},
	} {
		for _, of := range types {
			if got := of.Size(); got != size {
				t.Errorf("%q has %d bytes, want %d", of, got, size)
			}
		}
	}
}

// The product is right or refused, whatever the shape.
func FuzzElements(f *testing.F) {
	f.Add(int64(1), int64(28), int64(28))
	f.Add(int64(-1), int64(2), int64(2))
	f.Add(int64(0), int64(1)<<62, int64(3))
	f.Add(int64(1)<<40, int64(1), int64(1))
	f.Add(int64(1)<<40, int64(2), int64(1))
	f.Add(int64(3037000500), int64(3037000500), int64(2))
	f.Fuzz(func(t *testing.T, a, b, c int64) {
		shape := []int64{a, b, c}
		got, err := Elements(shape)
		want := big.NewInt(1)
		for _, d := range shape {
			want.Mul(want, big.NewInt(d))
		}
		switch {
		case slices.Min(shape) < 0:
			if err == nil {
				t.Errorf("%v has %d elements", shape, got)
			}
		case err == nil && (want.Cmp(big.NewInt(got)) != 0 || got > 1<<40):
			t.Errorf("%v has %d elements, and not %v", shape, got, want)
		case err != nil && want.Sign() > 0 && want.Cmp(big.NewInt(1<<40)) <= 0:
			t.Errorf("%v: %v", shape, err)
		}
	})
}

// No dimension is a scalar.
func TestScalars(t *testing.T) {
	if n, err := Elements(nil); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// The same description reads the same, wherever its edge lies in memory.
func TestInfoString(t *testing.T) {
	for want, info := range map[string]Info{
		"{x FP32 [-1 2]}":                    {Name: "x", Type: FP32, Shape: []int64{-1, 2}},
		"{s BYTES [-1 2 3] of {[2 -1 3] 1}}": {Name: "s", Type: Bytes, Shape: []int64{-1, 2, 3}, Edge: &Edge{Shape: []int64{2, -1, 3}, Axis: 1}},
	} {
		if got := info.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
