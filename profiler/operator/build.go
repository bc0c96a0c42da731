package operator

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// irVersion is that of the models made here; every engine since 2022 reads it.
const irVersion = 8

// maxBytes bounds what a model of one operator, or one of its inputs, takes; a
// protobuf message ends at twice that.
const maxBytes = 1 << 30

// Model makes a model of the operator alone, to be loaded without optimisation:
// the graph is the one that runs in the place that it was taken from. Its
// weights are initialisers of seeded values like those of trained ones;
// activations are inputs, and so are contents that grow with the batch, in the
// order of the operator's inputs. Dimensions that grow with the batch are
// dynamic, wherever they stand. No input or output is a scalar, which engines'
// bindings do not take: one that is read is an initialiser, one that is written
// is left inside. An operator that would have no input gets one that it does not
// read. A [Operator.View] is followed by a Shape, which reads no data,
// as its output would be copied if it were the model's.
func (o *Operator) Model() (*model.Model, error) {
	if o.Unknown && o.Domain != "" && o.Domain != "com.microsoft" && o.Domain != "com.microsoft.nchwc" {
		return nil, fmt.Errorf("no model can be made of %s alone: its domain %s is not known", o.Type, o.Domain)
	}
	g := &onnxpb.GraphProto{Name: proto.String(o.name())}
	node := &onnxpb.NodeProto{OpType: proto.String(o.name()), Attribute: o.Attributes}
	if o.Domain != "" {
		node.Domain = proto.String(o.Domain)
	}
	sum := fnv.New64a()
	sum.Write([]byte(o.Key()))
	for i := range o.Inputs {
		name, err := o.place(g, i, rand.New(rand.NewPCG(sum.Sum64(), uint64(i))))
		if err != nil {
			return nil, fmt.Errorf("input %d of %s: %w", i, o.Type, err)
		}
		node.Input = append(node.Input, name)
	}
	if len(g.Input) == 0 {
		g.Input = append(g.Input, declare(unread.Name, unread.Type, []Dim{{Fixed: 1}}))
	}
	g.Node = []*onnxpb.NodeProto{node}
	for i, out := range o.Outputs {
		name := ""
		if out.Role != Absent {
			name = fmt.Sprintf("out%d", i)
		}
		if out.Role != Absent && len(out.Shape) > 0 {
			g.Output = append(g.Output, declare(name, out.Type, out.Shape))
		}
		node.Output = append(node.Output, name)
	}
	o.finish(g)
	return model.FromProto(&onnxpb.ModelProto{
		IrVersion: proto.Int64(irVersion), ProducerName: proto.String("faas-infer"), Graph: g, OpsetImport: o.imports(),
	})
}

// finish adds what comes after a view and after an operator that gives scalars
// only.
func (o *Operator) finish(g *onnxpb.GraphProto) {
	at := slices.IndexFunc(o.Outputs, func(out Operand) bool { return out.Role != Absent })
	if at < 0 || !o.View && len(g.Output) > 0 {
		return
	}
	out, name := o.Outputs[at], fmt.Sprintf("out%d", at)
	if o.View && len(out.Shape) > 0 {
		g.Node = append(g.Node, &onnxpb.NodeProto{OpType: proto.String("Shape"), Input: []string{name}, Output: []string{"shape"}})
		g.Output = []*onnxpb.ValueInfoProto{declare("shape", tensor.Int64, []Dim{{Fixed: int64(len(out.Shape))}})}
		return
	}
	one := &onnxpb.TensorProto{Name: proto.String("one"), DataType: proto.Int32(int32(onnxpb.TensorProto_INT64)), Dims: []int64{1}, Int64Data: []int64{1}}
	g.Initializer = append(g.Initializer, one)
	g.Node = append(g.Node, &onnxpb.NodeProto{OpType: proto.String("Reshape"), Input: []string{name, "one"}, Output: []string{"vector"}})
	g.Output = []*onnxpb.ValueInfoProto{declare("vector", out.Type, []Dim{{Fixed: 1}})}
}

// imports are the operator's domain and the standard one.
func (o *Operator) imports() []*onnxpb.OperatorSetIdProto {
	const standard = 17
	of := func(domain string, version int64) *onnxpb.OperatorSetIdProto {
		return &onnxpb.OperatorSetIdProto{Domain: proto.String(domain), Version: proto.Int64(max(1, version))}
	}
	if o.Domain == "" {
		return []*onnxpb.OperatorSetIdProto{of("", o.Opset)}
	}
	return []*onnxpb.OperatorSetIdProto{of("", standard), of(o.Domain, o.Opset)}
}

// place adds input i to the graph, as an input or as an initialiser, and
// returns its name.
func (o *Operator) place(g *onnxpb.GraphProto, i int, rng *rand.Rand) (string, error) {
	in, name := o.Inputs[i], fmt.Sprintf("in%d", i)
	switch {
	case in.Role == Absent:
		return "", nil
	case in.Same > 0:
		return fmt.Sprintf("in%d", in.Same-1), nil
	case elements[in.Type] == 0:
		return "", fmt.Errorf("no values can be made for its element type")
	case in.sent():
		g.Input = append(g.Input, declare(name, in.Type, in.Shape))
		return name, nil
	}
	t, err := o.constant(i, rng)
	if err != nil {
		return "", err
	}
	t.Name = proto.String(name)
	g.Initializer = append(g.Initializer, t)
	return name, nil
}

// constant is input i as an initialiser.
func (o *Operator) constant(i int, rng *rand.Rand) (*onnxpb.TensorProto, error) {
	in := o.Inputs[i]
	if in.Constant != nil {
		return proto.CloneOf(in.Constant), nil
	}
	t := &onnxpb.TensorProto{DataType: proto.Int32(int32(elements[in.Type])), Dims: in.At(0)}
	if in.Role == Contents {
		for _, d := range in.Contents {
			t.RawData = appendWhole(t.RawData, in.Type, d.At(1)) // a scalar may grow
		}
		return t, nil
	}
	if in.Bytes(0) > maxBytes {
		return nil, fmt.Errorf("its %d MiB are more than %d", in.Bytes(0)>>20, maxBytes>>20)
	}
	t.RawData = o.filling(i, in.At(0)).fill(in.Elements(0), rng)
	return t, nil
}

// filling says what values input i of that shape gets.
func (o *Operator) filling(i int, shape []int64) filling {
	in := o.Inputs[i]
	f := filling{elem: in.Type, kind: kindOf(o.name(), i), bound: in.Lookup, width: 1}
	if len(shape) > 0 {
		f.row = shape[len(shape)-1]
	}
	if in.Role == Weight && o.name() != "Gather" {
		f.width = 1 / math.Sqrt(float64(max(1, o.fanIn(shape))))
	}
	return f
}

// fanIn is how many products an output element sums up; weights are as much
// smaller that outputs are as large as inputs.
func (o *Operator) fanIn(shape []int64) int64 {
	switch {
	case len(shape) < 2:
		return 1
	case len(shape) == 2:
		return shape[0]
	case o.gates() > 0:
		return shape[2]
	}
	n := int64(1)
	for _, d := range shape[1:] {
		n *= d
	}
	return n
}

// gates are those of a recurrent operator, 0 for another.
func (o *Operator) gates() int {
	return map[string]int{"LSTM": 4, "GRU": 3, "RNN": 1}[o.name()]
}

// declare describes an input or output; dimensions that grow are named by how
// they do.
func declare(name string, t tensor.Type, shape []Dim) *onnxpb.ValueInfoProto {
	dims := make([]*onnxpb.TensorShapeProto_Dimension, len(shape))
	for i, d := range shape {
		dims[i] = &onnxpb.TensorShapeProto_Dimension{}
		if d.PerRow == 0 {
			dims[i].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d.Fixed}
		} else {
			dims[i].Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: d.String()}
		}
	}
	return &onnxpb.ValueInfoProto{Name: proto.String(name), Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{
			ElemType: proto.Int32(int32(elements[t])), Shape: &onnxpb.TensorShapeProto{Dim: dims},
		},
	}}}
}

// Samples makes inputs of the operator's [Operator.Model] at a batch size, in
// its order, the same for the same seed. They are as in the operator's place in
// a model: numbers around 0, words within their table, masks of ones and then
// zeros; what they hold can change how long it takes, a softmax of zeros is
// much faster.
func (o *Operator) Samples(batch int, seed uint64) ([]tensor.Tensor, error) {
	if batch < 1 || batch > model.MaxBatch {
		return nil, fmt.Errorf("a batch of %d: it must be from 1 to %d", batch, model.MaxBatch)
	}
	var all []tensor.Tensor
	for i, in := range o.Inputs {
		if in.Role == Absent || in.Same > 0 || !in.sent() {
			continue
		}
		t := tensor.Tensor{Name: fmt.Sprintf("in%d", i), Type: in.Type, Shape: in.At(batch)}
		n, err := tensor.Elements(t.Shape)
		if err != nil || n*int64(max(1, in.Type.Size())) > maxBytes {
			return nil, fmt.Errorf("input %d of %s at a batch of %d: shape %v takes more than %d MiB", i, o.Type, batch, t.Shape, maxBytes>>20)
		}
		if in.Role == Contents {
			for _, d := range in.Contents {
				t.Data = appendWhole(t.Data, in.Type, d.At(batch))
			}
		} else {
			t.Data = o.filling(i, t.Shape).fill(n, rand.New(rand.NewPCG(seed, uint64(i))))
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		all = append(all, unread)
	}
	return all, nil
}

// unread is the input of an operator that has no other.
var unread = tensor.Tensor{Name: "unread", Type: tensor.Bool, Shape: []int64{1}, Data: []byte{1}}
