package savedmodel

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/savedmodel/flow"
	"github.com/faas-infer/faas-infer/model/savedmodel/rules"
	pb "github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Model is one signature of a SavedModel. It is safe for concurrent use.
type Model struct {
	name, signature string
	all             []string
	inputs, outputs []port
	library         *flow.Library
	graph           *flow.Graph

	// mu guards what is looked up only when it is needed: the library's
	// functions and the constants.
	mu *sync.Mutex
	// constants are those of the graph that were decoded, as ONNX has them.
	constants map[*pb.NodeDef]*onnxpb.TensorProto
}

func fromProto(saved *pb.SavedModel, name, signature string) (*Model, error) {
	meta, err := served(saved)
	if err != nil {
		return nil, err
	}
	m := &Model{
		name: name, all: signatures(meta), library: flow.NewLibrary(meta), mu: new(sync.Mutex),
		constants: make(map[*pb.NodeDef]*onnxpb.TensorProto),
	}
	if m.signature, err = choose(meta, signature); err != nil {
		return nil, err
	}
	def := meta.GetSignatureDef()[m.signature]
	if m.inputs, err = ports(def.GetInputs()); err != nil {
		return nil, err
	}
	if m.outputs, err = ports(def.GetOutputs()); err != nil {
		return nil, err
	}
	m.graph, err = m.library.Main(meta.GetGraphDef(), tensors(m.inputs), tensors(m.outputs))
	if err != nil {
		return nil, fmt.Errorf("%w: signature %q: %w", ErrNotSavedModel, m.signature, err)
	}
	return m, nil
}

// Name is the directory's, or that of the one above it for a version.
func (m *Model) Name() string { return m.name }

// Signature is the one that was read.
func (m *Model) Signature() string { return m.signature }

// Signatures are all that the model has, sorted.
func (m *Model) Signatures() []string { return m.all }

// Inputs describes what a caller must send, sorted by name. The batch dimension
// and every other dynamic one is -1; the shape is nil if the file gives none.
func (m *Model) Inputs() []tensor.Info { return infos(m.inputs) }

// Outputs describes what a caller gets, sorted by name.
func (m *Model) Outputs() []tensor.Info { return infos(m.outputs) }

func infos(ports []port) []tensor.Info {
	out := make([]tensor.Info, 0, len(ports))
	for _, p := range ports {
		out = append(out, tensor.Info{Name: p.key, Type: elementType(rules.Element(p.kind)), Shape: rules.Shape(p.shape)})
	}
	return out
}

// fed are the signature's inputs at a batch size; an error that wraps
// [model.ErrNoBatch] if one has no dynamic leading dimension.
func (m *Model) fed(batch int) ([]known, error) {
	if len(m.inputs) == 0 {
		return nil, fmt.Errorf("signature %q has no input: %w", m.signature, model.ErrNoBatch)
	}
	var all []known
	for _, p := range m.inputs {
		dims := slices.Clone(rules.Shape(p.shape))
		switch {
		case len(dims) == 0:
			return nil, fmt.Errorf("input %q has no dimensions: %w; save the model with a dynamic leading axis", p.key, model.ErrNoBatch)
		case dims[0] >= 0:
			return nil, fmt.Errorf("input %q has the fixed shape %v: %w; save the model with a dynamic leading axis", p.key, dims, model.ErrNoBatch)
		}
		dims[0] = int64(batch)
		v := known{name: p.key}
		v.Elem, v.Shape = rules.Element(p.kind), dims
		all = append(all, v)
	}
	return all, nil
}

// variableBytes is the size of the variables that the signature reads, as far as
// the file tells it.
func (m *Model) variableBytes() int64 {
	size := int64(0)
	for _, n := range m.graph.Nodes {
		if !variables[n.Def.GetOp()] {
			continue
		}
		v := variable(n)
		if each := elementSize(v.Elem); v.Elements() > 0 && v.Elements() < math.MaxInt64/8 {
			size += min(v.Elements()*each, math.MaxInt64-size)
		}
	}
	return size
}

var elementTypes = map[onnxpb.TensorProto_DataType]tensor.Type{
	onnxpb.TensorProto_BOOL:    tensor.Bool,
	onnxpb.TensorProto_UINT8:   tensor.Uint8,
	onnxpb.TensorProto_INT8:    tensor.Int8,
	onnxpb.TensorProto_INT16:   tensor.Int16,
	onnxpb.TensorProto_UINT16:  tensor.Uint16,
	onnxpb.TensorProto_INT32:   tensor.Int32,
	onnxpb.TensorProto_UINT32:  tensor.Uint32,
	onnxpb.TensorProto_INT64:   tensor.Int64,
	onnxpb.TensorProto_UINT64:  tensor.Uint64,
	onnxpb.TensorProto_FLOAT16: tensor.FP16,
	onnxpb.TensorProto_FLOAT:   tensor.FP32,
	onnxpb.TensorProto_DOUBLE:  tensor.FP64,
}

// elementType is "" for a type without an Open Inference name.
func elementType(t onnxpb.TensorProto_DataType) tensor.Type { return elementTypes[t] }

func elementSize(t onnxpb.TensorProto_DataType) int64 {
	switch t {
	case onnxpb.TensorProto_BFLOAT16:
		return 2
	case onnxpb.TensorProto_COMPLEX64:
		return 8
	case onnxpb.TensorProto_COMPLEX128:
		return 16
	}
	return int64(max(elementType(t).Size(), 1))
}
