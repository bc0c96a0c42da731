package strangers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"github.com/faas-infer/faas-infer/e2e/graphs"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// maxJSON is the number of elements up to which a request is also sent as JSON.
const maxJSON = 1 << 14

// fitsJSON reports whether a request and its answer can be written as JSON: JSON has no 16-bit
// floats in v2, and no infinite numbers.
func fitsJSON(request []tensor.Tensor, want []graphs.Want) bool {
	all := request
	for _, w := range want {
		all = append(all[:len(all):len(all)], tensor.Tensor{Type: w.Type, Shape: w.Shape, Data: w.Data})
	}
	for _, t := range all {
		n, err := tensor.Elements(t.Shape)
		if err != nil || n > maxJSON || t.Type == tensor.FP16 || t.Type == tensor.BF16 {
			return false
		}
		if t.Type != tensor.FP32 && t.Type != tensor.FP64 {
			continue
		}
		for at := 0; at < len(t.Data); at += t.Type.Size() {
			if v := t.Type.Number(t.Data[at:]); math.IsNaN(v) || math.IsInf(v, 0) {
				return false
			}
		}
	}
	return true
}

// jsonTensor is a tensor of v2 in JSON.
type jsonTensor struct {
	Name  string      `json:"name"`
	Type  tensor.Type `json:"datatype"`
	Shape []int64     `json:"shape"`
	Data  []any       `json:"data"`
}

// encodeJSON writes a request of v2 as clients do, with no code of the product.
func encodeJSON(request []tensor.Tensor) ([]byte, error) {
	var q struct {
		Inputs []jsonTensor `json:"inputs"`
	}
	for _, t := range request {
		one := jsonTensor{t.Name, t.Type, t.Shape, []any{}}
		for data := t.Data; len(data) > 0; {
			if t.Type == tensor.Bytes {
				s, rest, ok := graphs.CutString(data)
				if !ok {
					return nil, fmt.Errorf("the strings of %q are cut off", t.Name)
				}
				one.Data, data = append(one.Data, s), rest
				continue
			}
			v := t.Type.Number(data)
			switch t.Type {
			case tensor.Bool:
				one.Data = append(one.Data, v != 0)
			case tensor.FP32, tensor.FP64:
				one.Data = append(one.Data, v)
			default:
				one.Data = append(one.Data, int64(v))
			}
			data = data[t.Type.Size():]
		}
		q.Inputs = append(q.Inputs, one)
	}
	return json.Marshal(q)
}

// decodeJSON reads an answer of v2 whose outputs are JSON.
func decodeJSON(answer []byte) ([]tensor.Tensor, error) {
	var a struct {
		Outputs []jsonTensor `json:"outputs"`
	}
	d := json.NewDecoder(bytes.NewReader(answer))
	d.UseNumber()
	if err := d.Decode(&a); err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	var out []tensor.Tensor
	for _, o := range a.Outputs {
		t := tensor.Tensor{Name: o.Name, Type: o.Type, Shape: o.Shape}
		for i, value := range o.Data {
			switch v := value.(type) {
			case bool:
				t.Data = append(t.Data, map[bool]byte{true: 1}[v])
			case string:
				t.Data = graphs.AppendString(t.Data, v)
			case json.Number:
				n, err := v.Float64()
				if err != nil {
					return nil, fmt.Errorf("output %q: number %d: %w", o.Name, i, err)
				}
				t.Data = o.Type.Append(t.Data, n)
			default:
				return nil, fmt.Errorf("output %q: element %d is %v", o.Name, i, value)
			}
		}
		out = append(out, t)
	}
	return out, nil
}
