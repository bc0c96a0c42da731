package onnxruntime

import (
	"fmt"
	"math"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// signature is a model's inputs and outputs in the model's order.
type signature struct {
	Inputs  []tensor.Info `json:"inputs"`
	Outputs []tensor.Info `json:"outputs"`
}

// readSignature loads the model to read its signature. ONNX Runtime's binding offers no
// other way, so prepared models keep theirs in the manifest.
func readSignature(path string, options *ort.SessionOptions) (signature, error) {
	defer withoutDenormals()()
	inputs, outputs, err := ort.GetInputOutputInfoWithOptions(path, options)
	if err != nil {
		return signature{}, plain(err)
	}
	var s signature
	if s.Inputs, err = infos("input", inputs); err != nil {
		return signature{}, err
	}
	if s.Outputs, err = infos("output", outputs); err != nil {
		return signature{}, err
	}
	return s, nil
}

// infos converts the inputs or outputs of a model and checks that instances can serve
// them. The error wraps model.ErrNoBatch if there is no batch dimension.
func infos(kind string, of []ort.InputOutputInfo) ([]tensor.Info, error) {
	if len(of) == 0 {
		return nil, fmt.Errorf("the model has no %s", kind)
	}
	out := make([]tensor.Info, 0, len(of))
	for _, o := range of {
		if o.OrtValueType != ort.ONNXTypeTensor {
			return nil, fmt.Errorf("%s %q is not a tensor but a %v", kind, o.Name, o.OrtValueType)
		}
		t, ok := types[o.DataType]
		if !ok {
			return nil, fmt.Errorf("%s %q has elements of %v, which requests cannot carry", kind, o.Name, o.DataType)
		}
		if len(o.Dimensions) == 0 || o.Dimensions[0] >= 0 {
			return nil, fmt.Errorf("%w: %s %q has the shape %v, its first dimension must be dynamic",
				model.ErrNoBatch, kind, o.Name, []int64(o.Dimensions))
		}
		shape := make([]int64, len(o.Dimensions))
		for i, d := range o.Dimensions {
			shape[i] = max(d, -1)
		}
		out = append(out, tensor.Info{Name: o.Name, Type: t, Shape: shape})
	}
	return out, nil
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
