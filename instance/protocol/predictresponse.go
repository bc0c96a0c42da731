package protocol

import (
	"fmt"
	"net/http"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/tensorjson"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// encodeRows writes {"predictions": [one per row]}.
func encodeRows(outputs []tensor.Tensor) (frame.Response, error) {
	body := append(make([]byte, 0, sizeOf(outputs)), `{"predictions":[`...)
	var err error
	rows := outputs[0].Shape[0]
	for row := range rows {
		if row > 0 {
			body = append(body, ',')
		}
		if len(outputs) > 1 {
			body = append(body, '{')
		}
		for i, t := range outputs {
			if len(outputs) > 1 {
				if i > 0 {
					body = append(body, ',')
				}
				body = append(appendString(body, t.Name), ':')
			}
			size := int64(len(t.Data)) / rows
			one := tensor.Tensor{Type: t.Type, Shape: t.Shape[1:], Data: t.Data[row*size : (row+1)*size]}
			if body, err = tensorjson.AppendNested(body, one); err != nil {
				return frame.Response{}, fmt.Errorf("output %q: %w", t.Name, err)
			}
		}
		if len(outputs) > 1 {
			body = append(body, '}')
		}
	}
	return answer(http.StatusOK, append(body, "]}"...)), nil
}

// encodeColumns writes {"outputs": the tensor, or an object of them}.
func encodeColumns(outputs []tensor.Tensor) (frame.Response, error) {
	body := append(make([]byte, 0, sizeOf(outputs)), `{"outputs":`...)
	if len(outputs) > 1 {
		body = append(body, '{')
	}
	var err error
	for i, t := range outputs {
		if len(outputs) > 1 {
			if i > 0 {
				body = append(body, ',')
			}
			body = append(appendString(body, t.Name), ':')
		}
		if body, err = tensorjson.AppendNested(body, t); err != nil {
			return frame.Response{}, fmt.Errorf("output %q: %w", t.Name, err)
		}
	}
	if len(outputs) > 1 {
		body = append(body, '}')
	}
	return answer(http.StatusOK, append(body, '}')), nil
}

func sizeOf(outputs []tensor.Tensor) int {
	n := 32
	for _, t := range outputs {
		n += len(t.Name) + len(t.Data)/t.Type.Size()*13 + int(t.Shape[0])*8
	}
	return n
}
