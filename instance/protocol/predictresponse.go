package protocol

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/tensorjson"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// encodeRows writes {"predictions": [one per row]}. Outputs of a model without a batch may have
// no common number of rows; they are written as a whole.
func encodeRows(outputs []tensor.Tensor) (frame.Response, error) {
	for _, t := range outputs {
		if len(t.Shape) == 0 || t.Shape[0] != outputs[0].Shape[0] {
			return encodeWhole("predictions", outputs)
		}
	}
	body := append(make([]byte, 0, sizeOf(outputs)), `{"predictions":[`...)
	rows := outputs[0].Shape[0]
	split, err := [][]tensor.Tensor{outputs}, error(nil)
	if rows > 1 {
		if split, err = tensor.Split(outputs, slices.Repeat([]int{1}, int(rows))); err != nil {
			return frame.Response{}, fmt.Errorf("output %w", err)
		}
	}
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
			one := split[row][i]
			one.Shape = one.Shape[1:]
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
	return encodeWhole("outputs", outputs)
}

// encodeWhole writes an object whose only key has the tensor, or an object of them.
func encodeWhole(key string, outputs []tensor.Tensor) (frame.Response, error) {
	body := append(make([]byte, 0, sizeOf(outputs)), `{"`+key+`":`...)
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
		n += len(t.Name) + textSize(t)
	}
	return n
}

// textSize is the approximate length of a tensor's elements as JSON.
func textSize(t tensor.Tensor) int {
	if t.Type == tensor.Bytes {
		return len(t.Data) // Quotes and a comma take less than the length before each string.
	}
	return len(t.Data) / t.Type.Size() * 13
}
