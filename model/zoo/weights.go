package zoo

import (
	"encoding/binary"
	"hash/fnv"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// splitmix is Steele, Lea and Flood's SplitMix64 generator. It needs one addition
// and a mix for 64 bits, so BERT's hundred million weights take a fraction of a
// second.
type splitmix uint64

func (s *splitmix) next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// newSplitmix gives each weight its own random stream, so a weight does not change
// when another layer does.
func newSplitmix(seed uint64, name string) splitmix {
	h := fnv.New64a()
	h.Write([]byte(name))
	return splitmix(h.Sum64() ^ seed*0x9e3779b97f4a7c15)
}

// uniform draws a float32 tensor from [centre-width, centre+width).
func uniform(seed uint64, name string, centre, width float64, dims ...int64) *onnxpb.TensorProto {
	rng := newSplitmix(seed, name)
	raw := make([]byte, 4*product(dims))
	low, step := float32(centre-width), float32(2*width/(1<<24))
	var bits uint64
	for i := 0; i < len(raw); i += 4 {
		if i%8 == 0 {
			bits = rng.next()
		} else {
			bits >>= 32
		}
		v := low + step*float32(bits&(1<<24-1))
		binary.LittleEndian.PutUint32(raw[i:], math.Float32bits(v))
	}
	return floatTensor(name, raw, dims)
}

// floats is a float32 tensor of the given values.
func floats(name string, values []float32, dims ...int64) *onnxpb.TensorProto {
	raw := make([]byte, 0, 4*len(values))
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return floatTensor(name, raw, dims)
}

func floatTensor(name string, raw []byte, dims []int64) *onnxpb.TensorProto {
	return &onnxpb.TensorProto{
		Name: &name, Dims: dims, RawData: raw,
		DataType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)),
	}
}

// integers is an int64 tensor of the given values, a vector if dims is empty.
func integers(name string, values []int64, dims ...int64) *onnxpb.TensorProto {
	if dims == nil {
		dims = []int64{int64(len(values))}
	}
	raw := make([]byte, 0, 8*len(values))
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
	}
	return &onnxpb.TensorProto{
		Name: &name, Dims: dims, RawData: raw,
		DataType: proto.Int32(int32(onnxpb.TensorProto_INT64)),
	}
}

func product(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}
