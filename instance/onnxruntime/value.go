package onnxruntime

import (
	"fmt"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"
)

// dataOf returns the elements of a tensor that ONNX Runtime allocated. The binding has
// already copied them into Go memory.
func dataOf(v ort.Value) ([]byte, error) {
	switch t := v.(type) {
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
