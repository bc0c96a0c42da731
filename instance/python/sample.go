package python

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// Sample returns random inputs of rows rows to measure a model with: real numbers in
// [0,1), and 0 or 1 for integers. Dynamic dimensions have one element. The same seed gives
// the same inputs.
func Sample(infos []tensor.Info, rows int, seed uint64) []tensor.Tensor {
	random := rand.New(rand.NewPCG(seed, uint64(rows)))
	var out []tensor.Tensor
	for _, info := range infos {
		shape, elements := []int64{int64(rows)}, rows
		for _, d := range info.Shape[1:] {
			d = max(1, d)
			shape = append(shape, d)
			elements *= int(d)
		}
		data := []byte{}
		for range elements {
			data = appendRandom(data, info.Type, random)
		}
		out = append(out, tensor.Tensor{Name: info.Name, Type: info.Type, Shape: shape, Data: data})
	}
	return out
}

func appendRandom(data []byte, t tensor.Type, random *rand.Rand) []byte {
	switch t {
	case tensor.FP32:
		return binary.LittleEndian.AppendUint32(data, math.Float32bits(random.Float32()))
	case tensor.FP64:
		return binary.LittleEndian.AppendUint64(data, math.Float64bits(random.Float64()))
	case tensor.FP16: // Only numbers with the exponent of 0.5: in [0.5, 1).
		return binary.LittleEndian.AppendUint16(data, uint16(0x3800|random.IntN(0x400)))
	}
	return t.Append(data, float64(random.IntN(2)))
}
