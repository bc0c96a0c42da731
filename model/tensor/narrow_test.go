package tensor

import (
	"encoding/binary"
	"math"
	"testing"
)

// Every float16 and bfloat16 comes back from 32 bits as it was.
func TestNarrow(t *testing.T) {
	for bits := range 1 << 16 {
		for _, kind := range []Type{FP16, BF16} {
			narrow := binary.LittleEndian.AppendUint16(nil, uint16(bits))
			v := kind.Number(narrow)
			wide := FP32.Append(nil, v)
			if kind == FP16 && v == 0 && bits != 0 { // half has no sign of zero.
				continue
			}
			back := kind.Narrow(wide)
			if math.IsNaN(v) {
				if !math.IsNaN(kind.Number(back)) {
					t.Fatalf("%s %#x: the NaN became %v", kind, bits, kind.Number(back))
				}
				continue
			}
			if got := binary.LittleEndian.Uint16(back); int(got) != bits {
				t.Fatalf("%s %#x (%v): %#x", kind, bits, v, got)
			}
		}
	}
}
