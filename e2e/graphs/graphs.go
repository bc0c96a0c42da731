// Package graphs makes random ONNX models with odd sizes, many types and control flow, and
// requests for them. ONNX Runtime tells their right answers; those of [Cases] are known.
// [Compare] compares answers. The package runs no model. Begin with [Make].
package graphs

import (
	"fmt"
	"math/rand/v2"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Rows is a dimension that a request may choose: its number of rows. A dimension of
// [Free](k) has the request's k-th free size.
const Rows = -1

// Free is the dimension that has a request's k-th free size, with k from 0.
func Free(k int) int64 { return int64(-2 - k) }

// Input says what requests send as one input of a model.
type Input struct {
	Name string
	Type tensor.Type
	// Shape has sizes, Rows and Free.
	Shape []int64
	// Low and High bound whole numbers, both included, and floats, which are uniform between
	// them. Where both are 0, whole numbers are 0 or 1. Where High is 0, floats are normally
	// distributed.
	Low, High float64
	// Words are the strings of an input of the type BYTES.
	Words []string
}

// Graph is a model with what requests to it look like.
type Graph struct {
	// Name says the number and the kind: r007-image.
	Name   string
	Model  *onnxpb.ModelProto
	Inputs []Input
	// Sizes are the free sizes of requests: each request has one list of them.
	Sizes [][]int64
	// Batched says that a request may have any number of rows.
	Batched bool
}

// kinds are what [Make] makes in turn.
var kinds = []struct {
	name string
	make func(b *builder)
}{
	{"mlp", mlp}, {"tokens", tokens}, {"image", image}, {"elementwise", elementwise}, {"branch", branch}, {"loop", loop},
	{"elsewhere", elsewhere}, {"recurrent", recurrent}, {"unbatched", unbatched}, {"quantised", quantised},
	{"across", across}, {"strings", stringsIn}, {"rows", dataRows}, {"mixed", mixed}, {"labels", labels},
}

// Kinds lists the kinds of graphs, in the order in which [Make] makes them.
func Kinds() []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	return names
}

// Make makes the i-th graph of a seed. The same arguments give the same graph.
func Make(seed uint64, i int) *Graph {
	kind := kinds[i%len(kinds)]
	b := newBuilder(rand.New(rand.NewPCG(seed, uint64(i))))
	kind.make(b)
	return b.finish(fmt.Sprintf("r%03d-%s", i, kind.name))
}

// Request makes the inputs of one request. Floats without bounds are multiplied by scale.
func Request(inputs []Input, rows int64, sizes []int64, scale float64, rng *rand.Rand) []tensor.Tensor {
	out := make([]tensor.Tensor, len(inputs))
	for i, in := range inputs {
		t := tensor.Tensor{Name: in.Name, Type: in.Type, Shape: make([]int64, len(in.Shape)), Data: []byte{}}
		elements := int64(1)
		for d, size := range in.Shape {
			switch {
			case size == Rows:
				size = rows
			case size < Rows:
				size = sizes[-2-size]
			}
			t.Shape[d] = size
			elements *= size
		}
		for range elements {
			t.Data = in.append(t.Data, scale, rng)
		}
		out[i] = t
	}
	return out
}

// append appends one random element.
func (in Input) append(data []byte, scale float64, rng *rand.Rand) []byte {
	float := in.Type == tensor.FP32 || in.Type == tensor.FP64 || in.Type == tensor.FP16
	switch {
	case in.Type == tensor.Bytes:
		return AppendString(data, in.Words[rng.IntN(len(in.Words))])
	case float && in.High == 0:
		return in.Type.Append(data, rng.NormFloat64()*scale)
	case float:
		return in.Type.Append(data, in.Low+rng.Float64()*(in.High-in.Low))
	}
	high := in.High
	if in.Low == 0 && high == 0 {
		high = 1
	}
	return in.Type.Append(data, in.Low+float64(rng.Int64N(int64(high-in.Low)+1)))
}

// AppendString appends an element of the type BYTES: its length in four bytes and its bytes.
func AppendString(data []byte, s string) []byte {
	n := len(s)
	return append(append(data, byte(n), byte(n>>8), byte(n>>16), byte(n>>24)), s...)
}
