package graphs

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// elements are ONNX's types of the protocol's.
var elements = map[tensor.Type]onnxpb.TensorProto_DataType{
	tensor.Bool: onnxpb.TensorProto_BOOL, tensor.Uint8: onnxpb.TensorProto_UINT8, tensor.Int8: onnxpb.TensorProto_INT8,
	tensor.Int16: onnxpb.TensorProto_INT16, tensor.Uint16: onnxpb.TensorProto_UINT16, tensor.Int32: onnxpb.TensorProto_INT32,
	tensor.Uint32: onnxpb.TensorProto_UINT32, tensor.Int64: onnxpb.TensorProto_INT64, tensor.Uint64: onnxpb.TensorProto_UINT64,
	tensor.FP16: onnxpb.TensorProto_FLOAT16, tensor.FP32: onnxpb.TensorProto_FLOAT, tensor.FP64: onnxpb.TensorProto_DOUBLE,
	tensor.BF16: onnxpb.TensorProto_BFLOAT16, tensor.Bytes: onnxpb.TensorProto_STRING,
}

// unknown is a dimension of an output that the model does not state.
const unknown = math.MinInt64

// builder builds one graph. Its methods add a node and return the name of its output.
type builder struct {
	model  *onnxpb.ModelProto
	graph  *onnxpb.GraphProto
	rng    *rand.Rand
	inputs []Input
	sizes  [][]int64
	count  int
}

func newBuilder(rng *rand.Rand) *builder {
	g := &onnxpb.GraphProto{}
	opset := func(domain string, version int64) *onnxpb.OperatorSetIdProto {
		return &onnxpb.OperatorSetIdProto{Domain: &domain, Version: &version}
	}
	return &builder{rng: rng, graph: g, model: &onnxpb.ModelProto{
		IrVersion:   proto.Int64(8),
		OpsetImport: []*onnxpb.OperatorSetIdProto{opset("", 17), opset("ai.onnx.ml", 3)},
		Graph:       g,
	}}
}

// finish returns the graph.
func (b *builder) finish(name string) *Graph {
	b.graph.Name = &name
	g := &Graph{Name: name, Model: b.model, Inputs: b.inputs, Sizes: b.sizes}
	for _, in := range b.inputs {
		g.Batched = g.Batched || slices.Contains(in.Shape, Rows)
	}
	if len(g.Sizes) == 0 {
		g.Sizes = [][]int64{nil}
	}
	return g
}

// width is a number of units from 1 to limit. Small ones are as likely as large ones.
func (b *builder) width(limit float64) int64 {
	return min(int64(math.Exp(b.rng.Float64()*math.Log(limit+1))), int64(limit))
}

// chance is true with a probability.
func (b *builder) chance(p float64) bool { return b.rng.Float64() < p }

// pick returns one of its arguments.
func pick[T any](b *builder, of ...T) T { return of[b.rng.IntN(len(of))] }

// batch is the first dimension of inputs: mostly free, otherwise fixed.
func (b *builder) batch() int64 { return pick(b, Rows, Rows, Rows, Rows, 1, 1, int64(2+b.rng.IntN(4))) }

// valueInfo declares a value. Without dimensions it is a scalar.
func valueInfo(name string, of tensor.Type, shape []int64) *onnxpb.ValueInfoProto {
	dims := &onnxpb.TensorShapeProto{}
	for _, size := range shape {
		d := &onnxpb.TensorShapeProto_Dimension{}
		switch {
		case size == unknown:
		case size == Rows:
			d.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "n"}
		case size < Rows:
			d.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: fmt.Sprintf("s%d", -2-size)}
		default:
			d.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: size}
		}
		dims.Dim = append(dims.Dim, d)
	}
	return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{ElemType: proto.Int32(int32(elements[of])), Shape: dims},
	}}}
}

// input declares an input.
func (b *builder) input(in Input) string {
	b.inputs = append(b.inputs, in)
	b.graph.Input = append(b.graph.Input, valueInfo(in.Name, in.Type, in.Shape))
	return in.Name
}

// float declares an input of random float32 numbers.
func (b *builder) float(name string, shape ...int64) string {
	return b.input(Input{Name: name, Type: tensor.FP32, Shape: shape})
}

// output makes value x an output with another name.
func (b *builder) output(name, x string, of tensor.Type, shape ...int64) {
	b.graph.Node = append(b.graph.Node, node("Identity", []string{x}, []string{name}))
	b.graph.Output = append(b.graph.Output, valueInfo(name, of, shape))
}

func node(operator string, inputs, outputs []string, attributes ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
	return &onnxpb.NodeProto{OpType: &operator, Name: &outputs[0], Input: inputs, Output: outputs, Attribute: attributes}
}

func (b *builder) name(of string) string {
	b.count++
	return fmt.Sprintf("%s_%d", of, b.count)
}

// op adds a node with one output.
func (b *builder) op(operator string, inputs []string, attributes ...*onnxpb.AttributeProto) string {
	return b.ops("", operator, 1, inputs, attributes...)[0]
}

// ops adds a node of a domain with several outputs.
func (b *builder) ops(domain, operator string, outputs int, inputs []string, attributes ...*onnxpb.AttributeProto) []string {
	out := make([]string, outputs)
	for i := range out {
		out[i] = b.name(operator)
	}
	n := node(operator, inputs, out, attributes...)
	if domain != "" {
		n.Domain = &domain
	}
	b.graph.Node = append(b.graph.Node, n)
	return out
}

// constant adds numbers as an initializer.
func (b *builder) constant(of tensor.Type, shape []int64, values ...float64) string {
	name := b.name("c")
	t := tensorProto(of, shape, values...)
	t.Name = &name
	b.graph.Initializer = append(b.graph.Initializer, t)
	return name
}

func tensorProto(of tensor.Type, shape []int64, values ...float64) *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{Dims: shape, DataType: proto.Int32(int32(elements[of])), RawData: []byte{}}
	for _, v := range values {
		t.RawData = of.Append(t.RawData, v)
	}
	return t
}

// integers adds a vector of whole numbers, such as axes.
func (b *builder) integers(values ...int64) string {
	floats := make([]float64, len(values))
	for i, v := range values {
		floats[i] = float64(v)
	}
	return b.constant(tensor.Int64, []int64{int64(len(values))}, floats...)
}

// weights adds random float32 numbers whose products keep the size of what they multiply.
func (b *builder) weights(fan int64, shape ...int64) string {
	name, n := b.name("w"), int64(1)
	for _, size := range shape {
		n *= size
	}
	raw := make([]byte, 0, 4*n)
	deviation := 1 / math.Sqrt(float64(fan))
	for range n {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(b.rng.NormFloat64()*deviation)))
	}
	b.graph.Initializer = append(b.graph.Initializer, &onnxpb.TensorProto{
		Name: &name, Dims: shape, DataType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)), RawData: raw,
	})
	return name
}

// cast changes the type of a value.
func (b *builder) cast(x string, to tensor.Type) string {
	return b.op("Cast", []string{x}, integer("to", int64(elements[to])))
}

func attribute(name string, of onnxpb.AttributeProto_AttributeType) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: &of}
}

func integer(name string, v int64) *onnxpb.AttributeProto {
	a := attribute(name, onnxpb.AttributeProto_INT)
	a.I = &v
	return a
}

func list(name string, v ...int64) *onnxpb.AttributeProto {
	a := attribute(name, onnxpb.AttributeProto_INTS)
	a.Ints = v
	return a
}

func number(name string, v float32) *onnxpb.AttributeProto {
	a := attribute(name, onnxpb.AttributeProto_FLOAT)
	a.F = &v
	return a
}

func numbers(name string, v ...float32) *onnxpb.AttributeProto {
	a := attribute(name, onnxpb.AttributeProto_FLOATS)
	a.Floats = v
	return a
}

func text(name, v string) *onnxpb.AttributeProto {
	a := attribute(name, onnxpb.AttributeProto_STRING)
	a.S = []byte(v)
	return a
}

func texts(name string, v ...string) *onnxpb.AttributeProto {
	a := attribute(name, onnxpb.AttributeProto_STRINGS)
	for _, s := range v {
		a.Strings = append(a.Strings, []byte(s))
	}
	return a
}

func subgraph(name string, g *onnxpb.GraphProto) *onnxpb.AttributeProto {
	a := attribute(name, onnxpb.AttributeProto_GRAPH)
	a.G = g
	return a
}

// TypeOf is the protocol's type of ONNX's, "" for types that this package's requests lack.
func TypeOf(element int32) tensor.Type {
	for of, number := range elements {
		if int32(number) == element {
			return of
		}
	}
	return ""
}
