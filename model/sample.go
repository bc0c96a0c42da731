package model

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// maxSample is the maximum size of one sample input in bytes.
const maxSample = 1 << 30

// SampleInputs makes random inputs like those of real requests: floats in [0, 1),
// word numbers within the table that the model looks them up in, strings of digits, and
// masks of ones followed by zeros. The same seed gives the same inputs. Values can change
// the execution time: a mask of other values made BERT's softmax many times
// slower. Dynamic dimensions other than the batch get the likeliest size; a model
// from [Model.Sized] has others.
func (m *Model) SampleInputs(batch int, seed uint64) ([]tensor.Tensor, error) {
	if batch < 1 || batch > MaxBatch {
		return nil, fmt.Errorf("a batch of %d: it must be from 1 to %d", batch, MaxBatch)
	}
	if err := m.checkBatch(); err != nil {
		return nil, err
	}
	rows, guess := m.lookups(), m.guess(nil).likeliest(nil)
	var out []tensor.Tensor
	for i, info := range m.Inputs() {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		info.Shape = append([]int64{int64(batch)}, guess[info.Name][1:]...)
		t, err := sample(info, rows[info.Name], rng)
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", info.Name, err)
		}
		out = append(out, t)
	}
	return out, nil
}

func sample(info tensor.Info, rows int64, rng *rand.Rand) (tensor.Tensor, error) {
	t := tensor.Tensor{Name: info.Name, Type: info.Type, Shape: info.Shape}
	n, err := tensor.Elements(t.Shape)
	if err != nil {
		return t, err
	}
	size := int64(info.Type.Size())
	if info.Type == tensor.Bytes {
		size = 5 // A length and a digit.
	}
	if size == 0 {
		return t, fmt.Errorf("no values can be made for its element type")
	}
	if n*size > maxSample {
		return t, fmt.Errorf("shape %v is more than %d MiB", t.Shape, maxSample>>20)
	}
	next := values(t, info, rows, rng)
	for range n {
		t.Data = t.Type.Append(t.Data, next())
	}
	return t, nil
}

// values returns a generator of an input's elements.
func values(t tensor.Tensor, info tensor.Info, rows int64, rng *rand.Rand) func() float64 {
	whole := info.Type != tensor.FP16 && info.Type != tensor.BF16 && info.Type != tensor.FP32 && info.Type != tensor.FP64
	switch {
	case strings.Contains(strings.ToLower(info.Name), "mask") || info.Type == tensor.Bool || whole && rows == 0 && info.Type.Size() > 1:
		return Mask(t.Shape[len(t.Shape)-1], rng)
	case !whole:
		return rng.Float64
	case info.Type == tensor.Bytes:
		rows = 10 // digits
	case rows == 0:
		rows = 128 // pixels of a quantised image
	}
	return func() float64 { return float64(rng.Int64N(rows)) }
}

// Mask returns a generator of rows of a length: at least one 1, then zeros, as for sentences
// shorter than the longest.
func Mask(length int64, rng *rand.Rand) func() float64 {
	at, ones := int64(0), int64(0)
	return func() float64 {
		if at == 0 {
			ones = 1 + rng.Int64N(length)
		}
		one := at < ones
		at = (at + 1) % length
		if one {
			return 1
		}
		return 0
	}
}

// passing holds the operators that pass word numbers on unchanged, between an
// input and the Gather that looks them up.
var passing = map[string]bool{
	"Cast": true, "Identity": true, "Transpose": true, "Reshape": true, "Flatten": true, "Squeeze": true,
	"Unsqueeze": true, "Slice": true, "Split": true, "Expand": true, "Concat": true,
}

// lookups maps each input that the model looks up in tables to the number of rows
// of the smallest table.
func (m *Model) lookups() map[string]int64 {
	g := m.proto.GetGraph()
	tables := make(map[string]int64)
	for _, t := range g.GetInitializer() {
		if len(t.GetDims()) >= 2 {
			tables[t.GetName()] = t.GetDims()[0]
		}
	}
	origin := make(map[string]string)
	for _, in := range m.inputs() {
		origin[in.GetName()] = in.GetName()
	}
	rows := make(map[string]int64)
	for _, n := range g.GetNode() {
		in := n.GetInput()
		if passing[n.GetOpType()] && len(in) > 0 && origin[in[0]] != "" {
			for _, o := range n.GetOutput() {
				origin[o] = origin[in[0]]
			}
		}
		for _, l := range lookupsOf(n) {
			if from, table := origin[l.ids], tables[l.table]; from != "" && table > 0 && (rows[from] == 0 || table < rows[from]) {
				rows[from] = table
			}
		}
	}
	return rows
}

// lookup names a value of row numbers and the table that they select from.
type lookup struct{ ids, table string }

func lookupsOf(n *onnxpb.NodeProto) []lookup {
	in := n.GetInput()
	switch {
	case n.GetOpType() == "Gather" && len(in) >= 2 && Attribute(n, "axis") == 0:
		return []lookup{{in[1], in[0]}}
	case n.GetOpType() == "EmbedLayerNormalization" && len(in) >= 5:
		return []lookup{{in[0], in[2]}, {in[1], in[4]}}
	}
	return nil
}
