package zoo

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// network builds one model operator by operator. Its methods add operators and
// return the names of their outputs.
type network struct {
	proto *onnxpb.ModelProto
	graph *onnxpb.GraphProto
	seed  uint64
	count map[string]int
	// random holds the distributions of the weights that are generated later, by name.
	random map[string]uniform
}

func newNetwork(a Architecture, seed uint64) *network {
	graph := &onnxpb.GraphProto{Name: proto.String(a.Name)}
	return &network{
		graph:  graph,
		seed:   seed,
		count:  make(map[string]int),
		random: make(map[string]uniform),
		proto: &onnxpb.ModelProto{
			IrVersion:    proto.Int64(8),
			OpsetImport:  []*onnxpb.OperatorSetIdProto{{Domain: proto.String(""), Version: proto.Int64(17)}},
			ProducerName: proto.String("faas-infer"),
			DocString:    proto.String(a.Description),
			Graph:        graph,
		},
	}
}

// input declares an input. dims leaves out the first dimension, the batch; -1 is a
// dynamic dimension.
func (n *network) input(name string, elem onnxpb.TensorProto_DataType, dims ...int64) string {
	n.graph.Input = append(n.graph.Input, valueInfo(name, elem, dims))
	return name
}

// output makes x an output under the given name.
func (n *network) output(name, x string, dims ...int64) {
	n.graph.Node = append(n.graph.Node, &onnxpb.NodeProto{
		Name: proto.String(name), OpType: proto.String("Identity"),
		Input: []string{x}, Output: []string{name},
	})
	n.graph.Output = append(n.graph.Output, valueInfo(name, onnxpb.TensorProto_FLOAT, dims))
}

func valueInfo(name string, elem onnxpb.TensorProto_DataType, dims []int64) *onnxpb.ValueInfoProto {
	dynamic := func(name string) *onnxpb.TensorShapeProto_Dimension {
		return &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: name}}
	}
	shape := &onnxpb.TensorShapeProto{Dim: []*onnxpb.TensorShapeProto_Dimension{dynamic("batch")}}
	for i, d := range dims {
		dim := dynamic(fmt.Sprintf("dim%d", i+1))
		if d >= 0 {
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d}
		}
		shape.Dim = append(shape.Dim, dim)
	}
	return &onnxpb.ValueInfoProto{
		Name: proto.String(name),
		Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{
			ElemType: proto.Int32(int32(elem)), Shape: shape,
		}}},
	}
}

// op adds an operator with one output.
func (n *network) op(kind string, inputs []string, attributes ...*onnxpb.AttributeProto) string {
	return n.ops(kind, 1, inputs, attributes...)[0]
}

// ops adds an operator with several outputs.
func (n *network) ops(kind string, outputs int, inputs []string, attributes ...*onnxpb.AttributeProto) []string {
	name := n.name(kind)
	out := []string{name}
	for i := 1; i < outputs; i++ {
		out = append(out, fmt.Sprintf("%s.%d", name, i))
	}
	n.graph.Node = append(n.graph.Node, &onnxpb.NodeProto{
		Name: proto.String(name), OpType: proto.String(kind),
		Input: inputs, Output: out, Attribute: attributes,
	})
	return out
}

// name numbers the operators of a kind: Conv_1, Conv_2.
func (n *network) name(kind string) string {
	n.count[kind]++
	return fmt.Sprintf("%s_%d", kind, n.count[kind])
}

// next is the name that the next operator of a kind will have, for its weights.
func (n *network) next(kind string) string {
	return fmt.Sprintf("%s_%d", kind, n.count[kind]+1)
}

func (n *network) initializer(t *onnxpb.TensorProto) string {
	n.graph.Initializer = append(n.graph.Initializer, t)
	return t.GetName()
}

// weight is a random tensor whose variance is gain/fanIn: He's rule for gain 2
// (before a ReLU), Xavier's for gain 1. Activations then keep their size from
// layer to layer. They neither overflow nor become denormal numbers, with which
// arithmetic is many times slower.
func (n *network) weight(name string, gain float64, fanIn int64, dims ...int64) string {
	return n.around(name, 0, math.Sqrt(3*gain/float64(fanIn)), dims...)
}

// maxEager is the maximum number of elements of a random weight that is made with the
// graph. Those who read a graph want the values of small constants.
const maxEager = 1024

// around is a random tensor near centre: biases, scales, variances.
func (n *network) around(name string, centre, width float64, dims ...int64) string {
	u, size := uniform{centre, width}, product(dims)
	t := floatTensor(name, nil, dims)
	if size <= maxEager {
		t.RawData = make([]byte, 4*size)
		u.fill(t.RawData, n.seed, name, 0)
	} else {
		t.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
		n.random[name] = u
	}
	return n.initializer(t)
}

// model is the network as a model that generates its large weights when it is written.
func (n *network) model() (*model.Model, error) {
	return model.Generated(n.proto, func(b []byte, t *onnxpb.TensorProto, offset int64) {
		n.random[t.GetName()].fill(b, n.seed, t.GetName(), offset)
	})
}

func (n *network) integers(values ...int64) string {
	return n.initializer(integers(n.name("integers"), values))
}

func (n *network) scalar(v float32) string {
	return n.initializer(floats(n.name("scalar"), []float32{v}))
}

func attrInt(name string, v int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INT.Enum(), I: &v}
}

func attrFloat(name string, v float32) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_FLOAT.Enum(), F: &v}
}

func attrInts(name string, v ...int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_INTS.Enum(), Ints: v}
}

func attrString(name, v string) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: onnxpb.AttributeProto_STRING.Enum(), S: []byte(v)}
}
