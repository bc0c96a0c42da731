package load

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// HeaderLength is the HTTP header of the Open Inference Protocol's binary
// tensor extension: the length of the JSON at the head of a body.
const HeaderLength = "Inference-Header-Content-Length"

// maxTensor is the maximum size in bytes of one input that BinaryBody makes.
const maxTensor = 1 << 30

// BinaryBody makes a random inference request for a model with these inputs and
// encodes it with [EncodeBinary]. Floats are in [0, 1), integers and booleans
// are 0 or 1. The batch dimension is rows, other dynamic dimensions are 1. The
// same seed gives the same body. BinaryBody returns an error for an input of a
// type without a fixed size.
func BinaryBody(inputs []tensor.Info, rows int, seed uint64) (body []byte, headerLength int, err error) {
	rng := rand.New(rand.NewPCG(seed, 0))
	tensors := make([]tensor.Tensor, len(inputs))
	for i, in := range inputs {
		if tensors[i], err = randomTensor(in, rows, rng); err != nil {
			return nil, 0, fmt.Errorf("input %q: %w", in.Name, err)
		}
	}
	return EncodeBinary(tensors)
}

func randomTensor(in tensor.Info, rows int, rng *rand.Rand) (tensor.Tensor, error) {
	t := tensor.Tensor{Name: in.Name, Type: in.Type, Shape: make([]int64, len(in.Shape))}
	for i, d := range in.Shape {
		switch {
		case i == 0:
			t.Shape[i] = int64(rows)
		case d < 0:
			t.Shape[i] = 1
		default:
			t.Shape[i] = d
		}
	}
	if in.Type.Size() == 0 {
		return t, fmt.Errorf("cannot make random values of type %q; use --body", in.Type)
	}
	n, err := tensor.Elements(t.Shape)
	if err != nil {
		return t, err
	}
	if n > maxTensor/int64(max(1, in.Type.Size())) {
		return t, fmt.Errorf("shape %v is too large for a request", t.Shape)
	}
	t.Data = make([]byte, 0, n*int64(in.Type.Size()))
	for range n {
		t.Data = appendRandom(t.Data, in.Type, rng)
	}
	return t, nil
}

// appendRandom appends one element, little endian.
func appendRandom(dst []byte, typ tensor.Type, rng *rand.Rand) []byte {
	switch typ {
	case tensor.FP32:
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(rng.Float32()))
	case tensor.FP64:
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(rng.Float64()))
	case tensor.FP16:
		// Exponent 14 and ten random bits: [0.5, 1), all normal numbers.
		return binary.LittleEndian.AppendUint16(dst, 14<<10|uint16(rng.IntN(1<<10)))
	}
	return typ.Append(dst, float64(rng.IntN(2)))
}

// The JSON of an inference request with binary tensors.
type (
	inferRequest struct {
		Inputs     []inferInput   `json:"inputs"`
		Parameters map[string]any `json:"parameters"`
	}
	inferInput struct {
		Name       string         `json:"name"`
		Shape      []int64        `json:"shape"`
		Type       tensor.Type    `json:"datatype"`
		Parameters map[string]any `json:"parameters"`
	}
)

// EncodeBinary encodes an inference request of the Open Inference Protocol v2
// with all tensors in binary form. The request asks for outputs in binary form.
// Send the body with the header [HeaderLength] set to headerLength.
func EncodeBinary(inputs []tensor.Tensor) (body []byte, headerLength int, err error) {
	request := inferRequest{Parameters: map[string]any{"binary_data_output": true}}
	size := 0
	for _, in := range inputs {
		request.Inputs = append(request.Inputs, inferInput{
			Name: in.Name, Shape: in.Shape, Type: in.Type,
			Parameters: map[string]any{"binary_data_size": len(in.Data)},
		})
		size += len(in.Data)
	}
	header, err := json.Marshal(request)
	if err != nil {
		return nil, 0, fmt.Errorf("encoding the request's header: %w", err)
	}
	body = append(make([]byte, 0, len(header)+size), header...)
	for _, in := range inputs {
		body = append(body, in.Data...)
	}
	return body, len(header), nil
}
