// Package model reads and writes ONNX models and turns them into a graph of
// operators. Each operator has its shapes at a given batch size, its
// multiply-adds and its parameters; a profiler predicts the model's latency from
// these (INFless §3.3). [ImageForm] says how a model wants its images.
//
// The package runs no model, and only functions that take a path do I/O.
// Begin with [ReadFile] and [Model.Graph].
package model

import (
	"errors"
	"fmt"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// ErrNoBatch is wrapped by the error for a model that cannot be batched: an
// input has no dimensions, or its leading dimension is fixed.
var ErrNoBatch = errors.New("no dynamic batch dimension")

// Model is an ONNX model. It is immutable, so it is safe for concurrent use.
type Model struct {
	proto *onnxpb.ModelProto
	// file is the path of the model, beside which its external data is; "" for a model that
	// was not read from a file.
	file string
	// generate makes the data of external weights when the model is written. It is nil
	// for a model whose weights are in the message or in files.
	generate Generator
}

// FromProto makes a model from an ONNX message. The model owns the message from
// then on. The errors are those of [Read].
func FromProto(p *onnxpb.ModelProto) (*Model, error) {
	if err := check(p); err != nil {
		return nil, err
	}
	return &Model{proto: p}, nil
}

// With is a model of another message whose weights in files, or that are still to be
// generated, are this model's.
func (m *Model) With(p *onnxpb.ModelProto) *Model {
	return &Model{proto: p, file: m.file, generate: m.generate}
}

// Proto is the ONNX message. It must not be changed. It lacks the weights that are in
// other files or are generated when the model is written.
func (m *Model) Proto() *onnxpb.ModelProto { return m.proto }

// Name is the graph's name, as its producer wrote it.
func (m *Model) Name() string { return m.proto.GetGraph().GetName() }

// Description is the model's own documentation. A model of the zoo has one
// sentence.
func (m *Model) Description() string { return m.proto.GetDocString() }

// Opset is the version of the standard ONNX operators that the model uses, 0 if
// the model does not give one.
func (m *Model) Opset() int64 {
	for _, o := range m.proto.GetOpsetImport() {
		if o.GetDomain() == "" || o.GetDomain() == "ai.onnx" {
			return o.GetVersion()
		}
	}
	return 0
}

// Inputs describes what a caller must send, in the model's order. Dynamic
// dimensions, the batch among them, are -1.
func (m *Model) Inputs() []tensor.Info { return infos(m.inputs()) }

// Outputs describes what a caller gets, in the model's order.
func (m *Model) Outputs() []tensor.Info { return infos(m.proto.GetGraph().GetOutput()) }

// inputs are the graph's inputs without the initialisers. Models before IR
// version 4 list these among their inputs.
func (m *Model) inputs() []*onnxpb.ValueInfoProto {
	g := m.proto.GetGraph()
	weights := make(map[string]bool, len(g.GetInitializer()))
	for _, t := range g.GetInitializer() {
		weights[t.GetName()] = true
	}
	var in []*onnxpb.ValueInfoProto
	for _, v := range g.GetInput() {
		if !weights[v.GetName()] {
			in = append(in, v)
		}
	}
	return in
}

// checkBatch returns an error that wraps [ErrNoBatch] and names the first input
// whose leading dimension is not dynamic.
func (m *Model) checkBatch() error {
	in := m.inputs()
	if len(in) == 0 {
		return fmt.Errorf("the model has no input: %w", ErrNoBatch)
	}
	for _, v := range in {
		shape := declaredShape(v.GetType().GetTensorType())
		switch {
		case len(shape) == 0:
			return fmt.Errorf("input %q has no dimensions: %w; export the model with a dynamic leading axis", v.GetName(), ErrNoBatch)
		case shape[0] >= 0:
			return fmt.Errorf("input %q has the fixed shape %v: %w; export the model with a dynamic leading axis", v.GetName(), shape, ErrNoBatch)
		}
	}
	return nil
}

func infos(values []*onnxpb.ValueInfoProto) []tensor.Info {
	out := make([]tensor.Info, 0, len(values))
	for _, v := range values {
		t := v.GetType().GetTensorType()
		out = append(out, tensor.Info{Name: v.GetName(), Type: elementType(t.GetElemType()), Shape: declaredShape(t)})
	}
	return out
}

// declaredShape is a value's shape as the file gives it, or nil if the file gives
// none. A dimension that is named or open is -1.
func declaredShape(t *onnxpb.TypeProto_Tensor) []int64 {
	if t.GetShape() == nil {
		return nil
	}
	shape := make([]int64, 0, len(t.GetShape().GetDim()))
	for _, d := range t.GetShape().GetDim() {
		// Some exporters write 0 where they mean a dynamic dimension.
		if v, ok := d.GetValue().(*onnxpb.TensorShapeProto_Dimension_DimValue); ok && v.DimValue > 0 {
			shape = append(shape, v.DimValue)
		} else {
			shape = append(shape, -1)
		}
	}
	return shape
}

var elementTypes = map[onnxpb.TensorProto_DataType]tensor.Type{
	onnxpb.TensorProto_BOOL:     tensor.Bool,
	onnxpb.TensorProto_UINT8:    tensor.Uint8,
	onnxpb.TensorProto_INT8:     tensor.Int8,
	onnxpb.TensorProto_INT16:    tensor.Int16,
	onnxpb.TensorProto_UINT16:   tensor.Uint16,
	onnxpb.TensorProto_INT32:    tensor.Int32,
	onnxpb.TensorProto_UINT32:   tensor.Uint32,
	onnxpb.TensorProto_INT64:    tensor.Int64,
	onnxpb.TensorProto_UINT64:   tensor.Uint64,
	onnxpb.TensorProto_FLOAT16:  tensor.FP16,
	onnxpb.TensorProto_BFLOAT16: tensor.BF16,
	onnxpb.TensorProto_FLOAT:    tensor.FP32,
	onnxpb.TensorProto_DOUBLE:   tensor.FP64,
	onnxpb.TensorProto_STRING:   tensor.Bytes,
}

// elementType is the Open Inference Protocol name of an ONNX element type, "" for
// a type without one (complex, 8-bit floats).
func elementType(code int32) tensor.Type {
	return elementTypes[onnxpb.TensorProto_DataType(code)]
}

// ElementType is the type of a constant's elements, "" for a type without an Open Inference
// name.
func ElementType(t *onnxpb.TensorProto) tensor.Type { return elementType(t.GetDataType()) }

// ElementCode is the ONNX element type of a tensor's elements, 0 for a type without one.
func ElementCode(t tensor.Type) onnxpb.TensorProto_DataType { return elementCodes[t] }

var elementCodes = func() map[tensor.Type]onnxpb.TensorProto_DataType {
	codes := make(map[tensor.Type]onnxpb.TensorProto_DataType, len(elementTypes))
	for code, t := range elementTypes {
		codes[t] = code
	}
	return codes
}()
