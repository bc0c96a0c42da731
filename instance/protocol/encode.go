package protocol

import (
	"encoding/json"
	"fmt"

	"github.com/faas-infer/faas-infer/instance/tensorjson"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// EncodeJSON encodes an inference request of the Open Inference Protocol v2 as JSON.
func EncodeJSON(inputs []tensor.Tensor) ([]byte, error) {
	body := []byte(`{"inputs":[`)
	for i, in := range inputs {
		if i > 0 {
			body = append(body, ',')
		}
		shape, err := json.Marshal(in.Shape)
		if err != nil {
			return nil, err
		}
		body = fmt.Appendf(body, `{"name":%q,"shape":%s,"datatype":%q,"data":`, in.Name, shape, in.Type)
		if body, err = tensorjson.AppendFlat(body, in); err != nil {
			return nil, err
		}
		body = append(body, '}')
	}
	return append(body, "]}"...), nil
}
