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

// gamma is what the generator's state grows by for each number.
const gamma = 0x9e3779b97f4a7c15

// skip leaves out n numbers.
func (s *splitmix) skip(n uint64) { *s += splitmix(n * gamma) }

func (s *splitmix) next() uint64 {
	*s += gamma
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
	return splitmix(h.Sum64() ^ seed*gamma)
}

// uniform is the distribution of a weight's elements: [centre-width, centre+width).
type uniform struct{ centre, width float64 }

// fill draws the bytes from an offset on of a tensor of float32. A random number gives
// two elements.
//
// With the race detector this loop took half the time of tests that make models. It
// touches nothing but b.
//
//go:norace
func (u uniform) fill(b []byte, seed uint64, name string, offset int64) {
	low, step := float32(u.centre-u.width), float32(2*u.width/(1<<24))
	element := offset / 4
	rng := newSplitmix(seed, name)
	rng.skip(uint64(element / 2))
	bits := rng.next()
	if element%2 == 1 {
		bits >>= 32
	}
	for first := int(offset % 4); len(b) > 0; first = 0 {
		drawn := math.Float32bits(low + step*float32(bits&(1<<24-1)))
		if first == 0 && len(b) >= 4 {
			binary.LittleEndian.PutUint32(b, drawn)
			b = b[4:]
		} else {
			var word [4]byte
			binary.LittleEndian.PutUint32(word[:], drawn)
			b = b[copy(b, word[first:]):]
		}
		if element++; element%2 == 0 {
			bits = rng.next()
		} else {
			bits >>= 32
		}
	}
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
