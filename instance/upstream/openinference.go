package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/faas-infer/faas-infer/instance/tensorjson"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// OpenInference is the client of a model at a server with the Open Inference Protocol v2.
type OpenInference struct {
	caller
	// binary says that the server takes tensors as bytes after the JSON.
	binary bool
}

var _ Server = (*OpenInference)(nil)

// binaryExtension is the name of the binary tensor extension in a server's metadata,
// lengthHeader its header.
const (
	binaryExtension = "binary_tensor_data"
	lengthHeader    = "Inference-Header-Content-Length"
)

// NewOpenInference returns the client of a model at a server. It sends no request yet.
func NewOpenInference(base, model string) *OpenInference {
	return &OpenInference{caller: newCaller(base, model, newTransport(1))}
}

// NewPeer returns the client of a model at another instance of this program, over that
// instance's connections. An instance takes tensors as bytes, so [OpenInference.Signature]
// need not be called first.
func NewPeer(over *http.Transport, model string) *OpenInference {
	return &OpenInference{caller: newCaller("http://instance", model, over), binary: true}
}

func (s *OpenInference) path(end string) string {
	return "/v2/models/" + url.PathEscape(s.model) + end
}

// Ready implements Server.
func (s *OpenInference) Ready(ctx context.Context) error {
	_, _, err := s.ask(ctx, http.MethodGet, s.path("/ready"), nil, nil)
	return err
}

// Signature implements Server.
func (s *OpenInference) Signature(ctx context.Context) (inputs, outputs []tensor.Info, err error) {
	var server struct {
		Extensions []string `json:"extensions"`
	}
	if err := s.getJSON(ctx, "/v2", &server); err != nil {
		return nil, nil, err
	}
	s.binary = slices.Contains(server.Extensions, binaryExtension)
	var model struct {
		Inputs  []tensor.Info `json:"inputs"`
		Outputs []tensor.Info `json:"outputs"`
	}
	if err := s.getJSON(ctx, s.path(""), &model); err != nil {
		return nil, nil, err
	}
	return model.Inputs, model.Outputs, checkAll(model.Inputs, model.Outputs)
}

func (s *OpenInference) getJSON(ctx context.Context, path string, into any) error {
	_, text, err := s.ask(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("the model server's %s: %w", path, err)
	}
	return nil
}

// parameters are the parameters of the binary extension.
type parameters struct {
	BinaryDataSize   *int64 `json:"binary_data_size,omitempty"`
	BinaryDataOutput bool   `json:"binary_data_output,omitempty"`
}

type wireTensor struct {
	tensor.Info
	Parameters parameters      `json:"parameters,omitzero"`
	Data       json.RawMessage `json:"data,omitempty"`
}

type wireRequest struct {
	Inputs     []wireTensor `json:"inputs"`
	Parameters parameters   `json:"parameters,omitzero"`
}

// Infer implements Server.
func (s *OpenInference) Infer(ctx context.Context, rows int, inputs []tensor.Tensor, outputs []tensor.Info) ([]tensor.Tensor, error) {
	header, body, err := s.encode(inputs)
	if err != nil {
		return nil, err
	}
	answered, text, err := s.ask(ctx, http.MethodPost, s.path("/infer"), header, body)
	if err != nil {
		return nil, err
	}
	got, err := decode(answered.Get(lengthHeader), text)
	if err != nil {
		return nil, fmt.Errorf("the model server's answer: %w", err)
	}
	return pick(outputs, rows, got)
}

// encode encodes a request. If the server has the binary extension, the tensors' bytes
// follow the JSON.
func (s *OpenInference) encode(inputs []tensor.Tensor) (http.Header, []byte, error) {
	q := wireRequest{Parameters: parameters{BinaryDataOutput: s.binary}}
	size := 0
	for _, t := range inputs {
		w := wireTensor{Info: tensor.Info{Name: t.Name, Type: t.Type, Shape: t.Shape}}
		if s.binary {
			n := int64(len(t.Data))
			w.Parameters.BinaryDataSize = &n
			size += len(t.Data)
		} else {
			var err error
			if w.Data, err = tensorjson.AppendFlat(nil, t); err != nil {
				return nil, nil, &Error{Status: http.StatusBadRequest, Text: fmt.Sprintf("input %q: %v", t.Name, err)}
			}
		}
		q.Inputs = append(q.Inputs, w)
	}
	text, err := json.Marshal(q)
	if err != nil {
		return nil, nil, err
	}
	if !s.binary {
		return http.Header{"Content-Type": {"application/json"}}, text, nil
	}
	body := append(make([]byte, 0, len(text)+size), text...)
	for _, t := range inputs {
		body = append(body, t.Data...)
	}
	return http.Header{"Content-Type": {"application/octet-stream"}, lengthHeader: {strconv.Itoa(len(text))}}, body, nil
}

// decode decodes an answer. The tensors may alias its body.
func decode(length string, body []byte) ([]tensor.Tensor, error) {
	text, rest := body, []byte(nil)
	if length != "" {
		n, err := strconv.Atoi(length)
		if err != nil || n < 0 || n > len(body) {
			return nil, fmt.Errorf("%s is %q, but the body has %d bytes", lengthHeader, length, len(body))
		}
		text, rest = body[:n], body[n:]
	}
	var r struct {
		Outputs []wireTensor `json:"outputs"`
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	var out []tensor.Tensor
	for _, w := range r.Outputs {
		t := tensor.Tensor{Name: w.Name, Type: w.Type, Shape: w.Shape}
		switch size := w.Parameters.BinaryDataSize; {
		case size != nil && (*size < 0 || *size > int64(len(rest))):
			return nil, fmt.Errorf("output %q has a binary_data_size of %d, but %d bytes are left", w.Name, *size, len(rest))
		case size != nil:
			t.Data, rest = rest[:*size:*size], rest[*size:]
		default:
			v := tensorjson.NewValues(w.Type)
			if err := v.Read(tensorjson.NewReader(w.Data), 0); err != nil {
				return nil, fmt.Errorf("output %q: %w", w.Name, err)
			}
			t.Data = v.Data
		}
		out = append(out, t)
	}
	return out, nil
}
