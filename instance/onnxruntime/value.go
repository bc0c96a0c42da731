package onnxruntime

import (
	"bytes"
	"fmt"
	"net/http"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// newStrings copies the elements of a string tensor into one of ONNX Runtime. The binding gives
// them to it as C strings, so an element with a zero byte would be cut without a word.
func newStrings(shape ort.Shape, data []byte) (ort.Value, error) {
	n, err := tensor.Elements(shape)
	if err == nil {
		err = tensor.CheckStrings(data, n)
	}
	if err != nil {
		return nil, err
	}
	contents := make([]string, 0, n)
	for s := range tensor.Strings(data) {
		if bytes.IndexByte(s, 0) >= 0 {
			return nil, &InputError{http.StatusBadRequest,
				fmt.Sprintf("element %d has a zero byte, which the model's engine cannot take", len(contents))}
		}
		contents = append(contents, unsafe.String(unsafe.SliceData(s), len(s)))
	}
	value, err := ort.NewStringTensor(shape)
	if err != nil {
		return nil, plain(err)
	}
	if err := value.SetContents(contents); err != nil {
		value.Destroy()
		return nil, plain(err)
	}
	return value, nil
}

// stringsOf returns the elements of a string tensor of ONNX Runtime.
func stringsOf(t *ort.StringTensor) ([]byte, error) {
	contents, err := t.GetContents()
	if err != nil {
		return nil, plain(err)
	}
	data := []byte{}
	for _, s := range contents {
		data = tensor.AppendString(data, s)
	}
	return data, nil
}

// dataOf returns the elements of a tensor that ONNX Runtime allocated. The binding has
// already copied them into Go memory.
func dataOf(v ort.Value) ([]byte, error) {
	switch t := v.(type) {
	case *ort.StringTensor:
		return stringsOf(t)
	case *ort.Tensor[float32]:
		return bytesOfSlice(t.GetData()), nil
	case *ort.Tensor[float64]:
		return bytesOfSlice(t.GetData()), nil
	case *ort.Tensor[bool]:
		return bytesOfSlice(t.GetData()), nil
	case *ort.Tensor[uint8]:
		return t.GetData(), nil
	case *ort.Tensor[int8]:
		return bytesOfSlice(t.GetData()), nil
	case *ort.Tensor[uint16]:
		return bytesOfSlice(t.GetData()), nil
	case *ort.Tensor[int16]:
		return bytesOfSlice(t.GetData()), nil
	case *ort.Tensor[uint32]:
		return bytesOfSlice(t.GetData()), nil
	case *ort.Tensor[int32]:
		return bytesOfSlice(t.GetData()), nil
	case *ort.Tensor[uint64]:
		return bytesOfSlice(t.GetData()), nil
	case *ort.Tensor[int64]:
		return bytesOfSlice(t.GetData()), nil
	}
	return nil, fmt.Errorf("an output of this element type must have a shape that is known before the run")
}

func bytesOfSlice[T any](s []T) []byte {
	if len(s) == 0 {
		return []byte{}
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}
