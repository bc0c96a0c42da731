package onnxruntime

import (
	"fmt"
	"math"
	"slices"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/ragged"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// signature is a model's inputs and outputs in the model's order, and how it is run.
type signature struct {
	Inputs  []tensor.Info `json:"inputs"`
	Outputs []tensor.Info `json:"outputs"`
	// Shapes are the model's own shapes of one row under which it ran, nil if it was not tried.
	Shapes tensor.Shapes `json:"shapes,omitempty"`
	// Integers is the range of the integers of sample rows, [0, 2) if it is zero.
	Integers integers `json:"integers,omitzero"`
	// Unbatched is why the model takes one request an execution, "" for a model whose rows
	// can be joined.
	Unbatched string `json:"unbatched,omitempty"`
	// Padding says how rows of different lengths run together, nil if they do not. Unpadded is why not, "" for a model
	// whose rows have one length, or that takes no tokens.
	Padding  *ragged.Padding `json:"padding,omitempty"`
	Unpadded string          `json:"unpadded,omitempty"`
	// Wide says which outputs the session computes in 32 bits though they have 16.
	Wide []bool `json:"wide,omitempty"`
	// Denormals says that denormal numbers count. Otherwise they are zero: they make arithmetic up
	// to 16 times slower, and change no answer visibly.
	Denormals bool `json:"denormals,omitempty"`
}

// settings are those of the model's sessions.
func (s signature) settings() []setting {
	if s.Denormals {
		return nil
	}
	return []setting{{"session.set_denormal_as_zero", "1"}}
}

// wide reports whether an output is computed in 32 bits though it has 16.
func (s signature) wide(output int) bool { return output < len(s.Wide) && s.Wide[output] }

// inferOutputs corrects the declared shapes of the outputs of a model, whose outline is m, by those that ONNX
// Runtime infers. It reports whether each still has a dynamic first dimension.
func (s *signature) inferOutputs(path string, m *model.Model) (standard bool, err error) {
	outputs, ok := outputsOf(m)
	if !ok {
		if outputs, err = s.loadOutputs(path); err != nil {
			return false, err
		}
	}
	s.Outputs = slices.Clone(s.Outputs)
	for i, o := range outputs {
		if len(o.Dimensions) == 0 || o.Dimensions[0] >= 0 || i >= len(s.Outputs) {
			return false, nil
		}
		s.Outputs[i].Shape = make([]int64, len(o.Dimensions))
		for d, size := range o.Dimensions {
			s.Outputs[i].Shape[d] = max(size, -1)
		}
	}
	return true, nil
}

// outputsOf infers the outputs of a model from its outline. It reports false if that needs the weights, as a few
// operators do.
func outputsOf(m *model.Model) (outputs []ort.InputOutputInfo, ok bool) {
	message, ok := m.Weightless()
	if !ok {
		return nil, false
	}
	_, outputs, err := ort.GetInputOutputInfoWithONNXData(message)
	return outputs, err == nil
}

// loadOutputs loads the model, which takes a second for 500 MB, and returns its outputs.
func (s *signature) loadOutputs(path string) ([]ort.InputOutputInfo, error) {
	defer s.denormals()()
	options, err := newOptions(1, ort.GraphOptimizationLevelDisableAll, s.settings()...)
	if err != nil {
		return nil, err
	}
	defer options.Destroy()
	_, outputs, err := ort.GetInputOutputInfoWithOptions(path, options)
	return outputs, plain(err)
}

// shapeFor returns the shape of info for this number of rows, and whether its memory can be
// allocated before the run: all of the shape is known, and the elements are no strings, which ONNX
// Runtime allocates one by one.
func shapeFor(info tensor.Info, rows int) (ort.Shape, bool) {
	shape := ort.Shape(append([]int64{int64(rows)}, info.Shape[1:]...))
	for _, d := range shape {
		if d < 0 {
			return shape, false
		}
	}
	return shape, info.Type != tensor.Bytes
}

var types = map[ort.TensorElementDataType]tensor.Type{
	ort.TensorElementDataTypeBool:     tensor.Bool,
	ort.TensorElementDataTypeUint8:    tensor.Uint8,
	ort.TensorElementDataTypeInt8:     tensor.Int8,
	ort.TensorElementDataTypeInt16:    tensor.Int16,
	ort.TensorElementDataTypeUint16:   tensor.Uint16,
	ort.TensorElementDataTypeInt32:    tensor.Int32,
	ort.TensorElementDataTypeUint32:   tensor.Uint32,
	ort.TensorElementDataTypeInt64:    tensor.Int64,
	ort.TensorElementDataTypeUint64:   tensor.Uint64,
	ort.TensorElementDataTypeFloat16:  tensor.FP16,
	ort.TensorElementDataTypeBFloat16: tensor.BF16,
	ort.TensorElementDataTypeFloat:    tensor.FP32,
	ort.TensorElementDataTypeDouble:   tensor.FP64,
	ort.TensorElementDataTypeString:   tensor.Bytes,
}

var elementTypes = func() map[tensor.Type]ort.TensorElementDataType {
	m := make(map[tensor.Type]ort.TensorElementDataType, len(types))
	for k, v := range types {
		m[v] = k
	}
	return m
}()

// bytesOf returns how many bytes a tensor of this type and shape holds.
func bytesOf(t tensor.Type, shape []int64) (int, error) {
	n, err := tensor.Elements(shape)
	if err != nil {
		return 0, err
	}
	if t.Size() == 0 {
		return 0, fmt.Errorf("elements of %s have no fixed size", t)
	}
	if n > math.MaxInt/int64(t.Size()) {
		return 0, fmt.Errorf("shape %v is too large", shape)
	}
	return int(n) * t.Size(), nil
}
