package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/tensorjson"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// modelVersion is the only version of a model.
const modelVersion = "1"

// openInference answers the routes below /v2.
func (m *Model) openInference(r frame.Request, parts []string) (*Call, frame.Response) {
	switch {
	case len(parts) == 0:
		return nil, answerJSON(struct {
			Name       string   `json:"name"`
			Version    string   `json:"version"`
			Extensions []string `json:"extensions"`
		}{"faas-infer", "2", []string{"binary_tensor_data", "classification", "model_configuration", "statistics"}})
	case len(parts) == 2 && parts[0] == "health" && parts[1] == "live":
		return nil, answer(http.StatusOK, []byte(`{"live":true}`))
	case len(parts) == 2 && parts[0] == "health" && parts[1] == "ready":
		return nil, answer(http.StatusOK, []byte(`{"ready":true}`))
	case len(parts) < 2 || parts[0] != "models":
		return nil, Failure(http.StatusNotFound, fmt.Errorf("the Open Inference Protocol has no route %s", r.Path))
	case !m.known(parts[1]):
		return nil, m.unknown(r, parts[1])
	}
	rest := parts[2:]
	if len(rest) >= 2 && rest[0] == "versions" {
		if rest[1] != modelVersion {
			return nil, Failure(http.StatusNotFound, fmt.Errorf("model %q has only the version %s", m.calledBy(r), modelVersion))
		}
		rest = rest[2:]
	}
	switch {
	case len(rest) == 0:
		return nil, m.metadata(m.calledBy(r))
	case len(rest) == 1 && rest[0] == "ready":
		return nil, answerJSON(struct {
			Name  string `json:"name"`
			Ready bool   `json:"ready"`
		}{m.calledBy(r), true})
	case len(rest) == 1 && rest[0] == "infer":
		return m.decodePost(r, m.decodeInfer)
	case len(rest) == 1 && rest[0] == "config":
		return nil, config(m, m.calledBy(r))
	case len(rest) == 1 && rest[0] == "stats":
		return nil, stats(m, m.calledBy(r))
	}
	return nil, Failure(http.StatusNotFound, fmt.Errorf("the Open Inference Protocol has no route %s", r.Path))
}

func (m *Model) metadata(name string) frame.Response {
	return answerJSON(struct {
		Name     string        `json:"name"`
		Versions []string      `json:"versions"`
		Platform string        `json:"platform"`
		Inputs   []tensor.Info `json:"inputs"`
		Outputs  []tensor.Info `json:"outputs"`
	}{name, []string{modelVersion}, platformOf(m), plainInfos(m.Inputs), plainInfos(m.Outputs)})
}

// plainInfos are descriptions as clients read them.
func plainInfos(infos []tensor.Info) []tensor.Info {
	out := slices.Clone(infos)
	for i := range out {
		out[i].Edge = nil
	}
	return out
}

// parameters are the protocol's parameters that the package knows. check refuses those
// that would change the answer and are not supported, or not there. All others are ignored.
type parameters struct {
	BinaryDataSize     *int64          `json:"binary_data_size"`
	BinaryData         *bool           `json:"binary_data"`
	BinaryDataOutput   bool            `json:"binary_data_output"`
	Classification     json.RawMessage `json:"classification"`
	SharedMemoryRegion json.RawMessage `json:"shared_memory_region"`
}

func (p *parameters) check() error {
	if p.Classification != nil {
		return errors.New("classification is a parameter of an output; name the output in \"outputs\" and give it the parameter")
	}
	if p.SharedMemoryRegion != nil {
		return errors.New("the shared memory extension is not supported")
	}
	return nil
}

// inferRequest is an inference request's JSON part.
type inferRequest struct {
	id         string
	parameters parameters
	inputs     []inferInput
	outputs    []inferOutput
}

type inferInput struct {
	Name       string
	Shape      []int64
	Datatype   tensor.Type
	Parameters parameters
	data       []byte // JSON
	elements   int64  // product of the shape
}

type inferOutput struct {
	Name       string     `json:"name"`
	Parameters parameters `json:"parameters"`
}

// decodeInfer decodes an inference request of the Open Inference Protocol.
func (m *Model) decodeInfer(r frame.Request) (*Call, error) {
	if r.Header.Get(lengthHeader) == "0" {
		return m.decodeRaw(r)
	}
	text, binary, err := splitBinary(r)
	if err != nil {
		return nil, err
	}
	var request inferRequest
	if err := request.read(m, tensorjson.NewReader(text)); err != nil {
		return nil, err
	}
	wanted, err := m.wanted(request)
	if err != nil {
		return nil, err
	}
	given := make([]tensor.Tensor, len(request.inputs))
	for i := range request.inputs {
		if given[i], binary, err = request.inputs[i].tensor(m, binary); err != nil {
			return nil, err
		}
	}
	if len(binary) > 0 {
		return nil, fmt.Errorf("%d bytes follow the last input's binary data", len(binary))
	}
	call, err := m.assemble(given)
	if err != nil {
		return nil, err
	}
	call.answerInfer(m, m.calledBy(r), request.id, wanted)
	return call, nil
}

// splitBinary splits a body into its JSON part and its binary part.
func splitBinary(r frame.Request) (text, binary []byte, err error) {
	header := r.Header.Get(lengthHeader)
	if header == "" {
		return r.Body, nil, nil
	}
	length, err := strconv.Atoi(header)
	if err != nil || length < 0 || length > len(r.Body) {
		return nil, nil, fmt.Errorf("%s: %q is not a length within the body of %d bytes", lengthHeader, header, len(r.Body))
	}
	return r.Body[:length], r.Body[length:], nil
}

// read reads the JSON part. It checks every input against the model at once and leaves
// the elements undecoded.
func (q *inferRequest) read(m *Model, r *tensorjson.Reader) error {
	err := r.Object(func(key string) error {
		switch key {
		case "id":
			return r.Into("id", &q.id)
		case "parameters":
			return r.Into("parameters", &q.parameters)
		case "outputs":
			return r.Into("outputs", &q.outputs)
		case "inputs":
			return r.Array(func() error {
				q.inputs = append(q.inputs, inferInput{})
				last := len(q.inputs) - 1
				if err := q.inputs[last].read(r); err != nil {
					return err
				}
				return q.inputs[last].check(m, q.inputs[:last])
			})
		}
		return r.Skip()
	})
	if err != nil {
		return err
	}
	if err := r.End(); err != nil {
		return err
	}
	return q.parameters.check()
}

func (in *inferInput) read(r *tensorjson.Reader) error {
	return r.Object(func(key string) (err error) {
		switch key {
		case "name":
			return r.Into("an input's name", &in.Name)
		case "shape":
			return r.Into("an input's shape", &in.Shape)
		case "datatype":
			return r.Into("an input's datatype", &in.Datatype)
		case "parameters":
			return r.Into("an input's parameters", &in.Parameters)
		case "data":
			if in.data != nil {
				return errors.New("an input's data is given twice")
			}
			in.data, err = r.Extent()
			return err
		}
		return r.Skip()
	})
}

// check checks the input against the model and against the inputs before it.
func (in *inferInput) check(m *Model, before []inferInput) (err error) {
	at := m.input(in.Name)
	switch {
	case at < 0:
		return m.noInput(in.Name)
	case slices.ContainsFunc(before, func(b inferInput) bool { return b.Name == in.Name }):
		return fmt.Errorf("input %q is given twice", in.Name)
	case in.Datatype == tensor.Bytes && m.Inputs[at].Type != tensor.Bytes:
		if err := in.Parameters.check(); err != nil {
			return fmt.Errorf("input %q: %w", in.Name, err)
		}
		return in.checkFiles(m)
	case in.Datatype.Size() == 0 && in.Datatype != tensor.Bytes:
		return fmt.Errorf("input %q has the datatype %.100q, which no model takes", in.Name, in.Datatype)
	}
	if err := in.Parameters.check(); err != nil {
		return fmt.Errorf("input %q: %w", in.Name, err)
	}
	in.elements, err = m.checkShape(m.Inputs[at], in.Datatype, in.Shape)
	return err
}

// tensor decodes the input's elements, from the binary part if it has a
// binary_data_size. rest is the unread rest of the binary part.
func (in *inferInput) tensor(m *Model, binary []byte) (t tensor.Tensor, rest []byte, err error) {
	if at := m.input(in.Name); in.Datatype == tensor.Bytes && m.Inputs[at].Type != tensor.Bytes {
		return in.files(m, binary)
	}
	t = tensor.Tensor{Name: in.Name, Type: in.Datatype, Shape: in.Shape}
	if size := in.Parameters.BinaryDataSize; size != nil {
		if in.data != nil {
			return t, nil, fmt.Errorf("input %q has both data and binary_data_size", in.Name)
		}
		if *size < 0 || *size > int64(len(binary)) {
			return t, nil, fmt.Errorf("input %q has a binary_data_size of %d, but the body has %d bytes", in.Name, *size, len(binary))
		}
		if t.Type != tensor.Bytes && *size%int64(t.Type.Size()) != 0 {
			return t, nil, fmt.Errorf("input %q has a binary_data_size of %d, which is not whole elements of %s", in.Name, *size, t.Type)
		}
		t.Data = binary[:*size:*size]
		return t, binary[*size:], nil
	}
	if in.data == nil {
		return t, nil, fmt.Errorf("input %q has no data", in.Name)
	}
	v := tensorjson.NewValues(t.Type)
	v.Limit = in.elements
	v.Reserve(in.elements, len(in.data))
	if err := v.Read(tensorjson.NewReader(in.data), 0); err != nil {
		return t, nil, fmt.Errorf("input %q: %w; its shape is %s", in.Name, err, describeShape(in.Shape))
	}
	// The data may be flat or nested. Nested data must have the given shape.
	if len(v.Shape) != 1 && !slices.Equal(v.Shape, in.Shape) {
		return t, nil, fmt.Errorf("input %q has data of the shape %s, but its shape says %s",
			in.Name, describeShape(v.Shape), describeShape(in.Shape))
	}
	t.Data = v.Data
	return t, binary, nil
}
