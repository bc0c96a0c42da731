package partitioning

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/faas-infer/faas-infer/model/tensor"
)

func floats(values ...float32) []tensor.Tensor {
	t := tensor.Tensor{Type: tensor.FP32, Shape: []int64{int64(len(values))}}
	for _, v := range values {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return []tensor.Tensor{t}
}

func halves(bits ...uint16) []tensor.Tensor {
	t := tensor.Tensor{Type: tensor.FP16, Shape: []int64{int64(len(bits))}}
	for _, v := range bits {
		t.Data = binary.LittleEndian.AppendUint16(t.Data, v)
	}
	return []tensor.Tensor{t}
}

// What is not finite hides nothing, wherever it is.
func TestDifference(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	infinite := math.Inf(1)
	for _, c := range []struct {
		what      string
		got, want []tensor.Tensor
		differ    int
		most      float64
	}{
		{"equal", floats(1, 2), floats(1, 2), 0, 0},
		{"a quarter of the largest", floats(1, 3), floats(1, 4), 1, 0.25},
		{"both NaN", floats(nan, 4), floats(nan, 4), 0, 0},
		{"a difference after NaN", floats(nan, 1), floats(nan, 2), 1, 0.5},
		{"NaN for a number, then NaN", floats(5, nan), floats(nan, nan), 1, infinite},
		{"a difference after infinity", floats(-inf, 1), floats(-inf, 2), 1, 0.5},
		{"other infinity", floats(inf), floats(-inf), 1, infinite},
		{"infinity for a number", floats(inf, 1), floats(1, 1), 1, infinite},
		{"other shape", floats(1, 2), floats(1), 1, infinite},
		{"other type", halves(0x3c00), floats(1), 1, infinite},
		{"halves", halves(0x3c00, 0x4000), halves(0x3c00, 0x4400), 1, 0.5},
		{"small halves", halves(0x0001), halves(0x0002), 1, 0.5},
		{"none", nil, floats(1), 1, infinite},
	} {
		if differ, most := Difference(c.got, c.want); differ != c.differ || most != c.most {
			t.Errorf("%s: %d elements by %v, want %d by %v", c.what, differ, most, c.differ, c.most)
		}
	}
}
