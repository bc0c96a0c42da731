package peers

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime/multipart"
	"net/http"
	"strconv"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/instance/tensorjson"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Payload is the encoding of a request's numbers.
type Payload string

// The payloads.
const (
	Binary Payload = "binary"
	JSON   Payload = "json"
	// GRPC is the Open Inference Protocol over gRPC with raw contents.
	GRPC Payload = "grpc"
)

// Payloads returns all payloads.
func Payloads() []Payload { return []Payload{Binary, JSON, GRPC} }

// Way is a protocol to send a request to a server and to read its answer.
type Way struct {
	Name string
	// Path is the path of a setting; %s in it is the setting's name.
	Path string
	// GRPC is set if request and answer are gRPC messages.
	GRPC bool
	// Encode returns the body and the headers of a request to a setting.
	Encode func(setting string, inputs []tensor.Tensor) (body []byte, header http.Header, err error)
	// Decode reads the only output of an answer.
	Decode func(body []byte) ([]float32, error)
}

// The ways. v2 is the Open Inference Protocol.
var (
	v2BinaryWay = Way{Name: "REST, v2 binary", Path: "/v2/models/%s/infer", Encode: encodeV2Binary, Decode: decodeV2}
	v2JSONWay   = Way{Name: "REST, v2 JSON", Path: "/v2/models/%s/infer", Encode: encodeV2JSON, Decode: decodeV2}
	grpcWay     = Way{Name: "gRPC, raw contents", Path: ModelInfer, GRPC: true, Encode: EncodeMessage, Decode: decodeMessage}
	fileWay     = Way{Name: "REST, file in a form", Path: "/file_%s", Encode: encodeFile, Decode: decodeNumbers}
	rowWay      = Way{Name: "REST, JSON", Path: "/json_%s", Encode: encodeRow, Decode: decodeNumbers}
	rawWay      = Way{Name: "HTTP, bytes", Path: "/bytes/%s", Encode: encodeRaw, Decode: floats}
	namedWay    = Way{Name: "HTTP, JSON", Path: "/json/%s", Encode: encodeNamed, Decode: decodeNumbers}
	base64Way   = Way{Name: "REST, base64 in JSON", Path: "/%s", Encode: encodeBase64, Decode: decodeNumbers}
	bareWay     = Way{Name: "REST, JSON", Path: "/%s", Encode: encodeNamed, Decode: decodeNumbers}
)

// ours are the ways to send requests to the provider's function.
var ours = map[Payload]Way{
	Binary: {Name: "v2 binary", Encode: encodeV2Binary, Decode: decodeV2},
	JSON:   {Name: "v2 JSON", Encode: encodeV2JSON, Decode: decodeV2},
	GRPC:   grpcWay,
}

var jsonHeader = http.Header{"Content-Type": {"application/json"}}

func encodeV2Binary(_ string, inputs []tensor.Tensor) ([]byte, http.Header, error) {
	body, length, err := load.EncodeBinary(inputs)
	return body, http.Header{"Content-Type": {"application/octet-stream"}, load.HeaderLength: {strconv.Itoa(length)}}, err
}

func encodeV2JSON(_ string, inputs []tensor.Tensor) ([]byte, http.Header, error) {
	body, err := protocol.EncodeJSON(inputs)
	return body, jsonHeader, err
}

// encodeNamed encodes a JSON object with an array for each input.
func encodeNamed(_ string, inputs []tensor.Tensor) (body []byte, _ http.Header, err error) {
	for i, in := range inputs {
		body = fmt.Appendf(append(body, "{,"[min(i, 1)]), "%q:", in.Name)
		if body, err = tensorjson.AppendNested(body, in); err != nil {
			return nil, nil, err
		}
	}
	return append(body, '}'), jsonHeader, nil
}

// joined returns all inputs as one row.
func joined(inputs []tensor.Tensor) tensor.Tensor {
	row := tensor.Tensor{Name: "x", Type: inputs[0].Type}
	for _, in := range inputs {
		row.Data = append(row.Data, in.Data...)
	}
	row.Shape = []int64{1, int64(len(row.Data) / row.Type.Size())}
	return row
}

func encodeRow(setting string, inputs []tensor.Tensor) ([]byte, http.Header, error) {
	return encodeNamed(setting, []tensor.Tensor{joined(inputs)})
}

func encodeRaw(_ string, inputs []tensor.Tensor) ([]byte, http.Header, error) {
	return joined(inputs).Data, http.Header{"Content-Type": {"application/octet-stream"}}, nil
}

func encodeBase64(_ string, inputs []tensor.Tensor) ([]byte, http.Header, error) {
	body, err := json.Marshal(map[string][]byte{"x": joined(inputs).Data})
	return body, jsonHeader, err
}

func encodeFile(_ string, inputs []tensor.Tensor) ([]byte, http.Header, error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	// All requests must have the same headers, so they share the boundary.
	err := form.SetBoundary("-----faas-infer-bench-peers")
	var part io.Writer
	if err == nil {
		part, err = form.CreateFormFile("x", "x.bin")
	}
	if err == nil {
		_, err = part.Write(joined(inputs).Data)
	}
	err = errors.Join(err, form.Close()) // Close writes the end of the body.
	return body.Bytes(), http.Header{"Content-Type": {form.FormDataContentType()}}, err
}

// floats reads little-endian 32-bit floats.
func floats(data []byte) ([]float32, error) {
	if len(data)%4 != 0 {
		return nil, fmt.Errorf("%d bytes are no 32-bit numbers", len(data))
	}
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return out, nil
}

// decodeV2 reads an answer of the Open Inference Protocol with one output. Binary data
// follow the JSON. It finds the JSON's end by parsing and ignores the header with its
// length.
func decodeV2(body []byte) ([]float32, error) {
	var answer struct {
		Outputs []struct {
			Data       json.RawMessage `json:"data"`
			Parameters struct {
				Size int `json:"binary_data_size"`
			} `json:"parameters"`
		} `json:"outputs"`
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&answer); err != nil {
		return nil, err
	}
	if len(answer.Outputs) != 1 {
		return nil, fmt.Errorf("%d outputs, not one", len(answer.Outputs))
	}
	out := answer.Outputs[0]
	if n := out.Parameters.Size; n > 0 {
		rest := body[d.InputOffset():]
		if len(rest) != n {
			return nil, fmt.Errorf("%d bytes follow the JSON: the output has %d", len(rest), n)
		}
		return floats(rest)
	}
	return decodeNumbers(out.Data)
}

// decodeNumbers reads all numbers of a JSON document, however they are nested.
func decodeNumbers(body []byte) (out []float32, err error) {
	if !json.Valid(body) {
		return nil, fmt.Errorf("no JSON: %.200q", body)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) && len(out) > 0 {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("no numbers in %.200q: %w", body, err)
		}
		if number, ok := token.(json.Number); ok {
			x, err := strconv.ParseFloat(string(number), 32)
			if err != nil {
				return nil, err
			}
			out = append(out, float32(x))
		}
	}
}

// The tolerance between two answers to one request: absolute, plus relative times the
// value.
const (
	absolute = 1e-5
	relative = 1e-3
)

// equal returns an error unless an answer equals the provider's up to a tolerance.
func equal(got, want []float32, absolute, relative float64) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d numbers where ours has %d", len(got), len(want))
	}
	for i, x := range got {
		if d := math.Abs(float64(x) - float64(want[i])); !(d <= absolute+relative*math.Abs(float64(want[i]))) {
			return fmt.Errorf("number %d is %g where ours is %g", i, x, want[i])
		}
	}
	return nil
}
