package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/faas-infer/faas-infer/instance/tensorjson"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Predict is the client of a model at a server with TensorFlow Serving's REST API. Its
// requests are by columns and use the default signature.
type Predict struct {
	caller
	signature string
}

var _ Server = (*Predict)(nil)

// NewPredict returns the client of a model at a server. It sends no request yet.
func NewPredict(base, model string) *Predict {
	return &Predict{caller: newCaller(base, model, newTransport(1)), signature: "serving_default"}
}

func (s *Predict) path(end string) string { return "/v1/models/" + url.PathEscape(s.model) + end }

// errLoading says that no version of the model is available.
var errLoading = errors.New("the model server has no version of the model available")

// Ready implements Server.
func (s *Predict) Ready(ctx context.Context) error {
	_, text, err := s.ask(ctx, http.MethodGet, s.path(""), nil, nil)
	if err != nil {
		return err
	}
	var status struct {
		Versions []struct {
			State  string `json:"state"`
			Status struct {
				Message string `json:"error_message"`
			} `json:"status"`
		} `json:"model_version_status"`
	}
	if err := json.Unmarshal(text, &status); err != nil {
		return fmt.Errorf("the model server's status: %w", err)
	}
	why := errLoading
	for _, v := range status.Versions {
		if v.State == "AVAILABLE" {
			return nil
		}
		if v.Status.Message != "" {
			why = fmt.Errorf("%w: %s", errLoading, v.Status.Message)
		}
	}
	return why
}

// tensorInfo is TensorFlow's TensorInfo in the JSON of its REST API.
type tensorInfo struct {
	Type  string `json:"dtype"`
	Shape struct {
		Dim []struct {
			Size string `json:"size"`
		} `json:"dim"`
		Unknown bool `json:"unknown_rank"`
	} `json:"tensor_shape"`
}

type signatureDef struct {
	Inputs  map[string]tensorInfo `json:"inputs"`
	Outputs map[string]tensorInfo `json:"outputs"`
}

// Signature implements Server.
func (s *Predict) Signature(ctx context.Context) (inputs, outputs []tensor.Info, err error) {
	_, text, err := s.ask(ctx, http.MethodGet, s.path("/metadata"), nil, nil)
	if err != nil {
		return nil, nil, err
	}
	var answer struct {
		Metadata struct {
			Map struct {
				Signatures map[string]signatureDef `json:"signature_def"`
			} `json:"signature_def"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, nil, fmt.Errorf("the model server's metadata: %w", err)
	}
	signatures := answer.Metadata.Map.Signatures
	delete(signatures, "__saved_model_init_op")
	def, ok := signatures[s.signature]
	if !ok {
		return nil, nil, fmt.Errorf("the model has no signature %q, but %q; export it with that one, for example with tf.saved_model.save(model, path, signatures=…)", s.signature, slices.Sorted(maps.Keys(signatures)))
	}
	inputs, err = infos("input", def.Inputs)
	if err == nil {
		outputs, err = infos("output", def.Outputs)
	}
	if err != nil {
		return nil, nil, err
	}
	return inputs, outputs, checkAll(inputs, outputs)
}

// types are the element types that JSON can carry, by TensorFlow's names.
var types = map[string]tensor.Type{
	"DT_BOOL": tensor.Bool, "DT_UINT8": tensor.Uint8, "DT_INT8": tensor.Int8,
	"DT_INT16": tensor.Int16, "DT_UINT16": tensor.Uint16, "DT_INT32": tensor.Int32,
	"DT_UINT32": tensor.Uint32, "DT_INT64": tensor.Int64, "DT_UINT64": tensor.Uint64,
	"DT_FLOAT": tensor.FP32, "DT_DOUBLE": tensor.FP64, "DT_STRING": tensor.Bytes,
}

// infos converts a signature's tensors, sorted by name.
func infos(kind string, given map[string]tensorInfo) ([]tensor.Info, error) {
	var out []tensor.Info
	for _, name := range slices.Sorted(maps.Keys(given)) {
		g := given[name]
		info := tensor.Info{Name: name, Type: types[g.Type]}
		switch {
		case info.Type == "":
			return nil, fmt.Errorf("%s %q has elements of the type %s, which JSON cannot carry to the server", kind, name, g.Type)
		case g.Shape.Unknown:
			return nil, fmt.Errorf("%s %q has no shape in the model's signature; export the model with one, for example tf.TensorSpec([None, 4])", kind, name)
		}
		for _, d := range g.Shape.Dim {
			n, err := strconv.ParseInt(d.Size, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s %q: dimension %q: %w", kind, name, d.Size, err)
			}
			info.Shape = append(info.Shape, n)
		}
		out = append(out, info)
	}
	return out, nil
}

// Infer implements Server.
func (s *Predict) Infer(ctx context.Context, rows int, inputs []tensor.Tensor, outputs []tensor.Info) ([]tensor.Tensor, error) {
	body, err := s.encode(inputs)
	if err != nil {
		return nil, err
	}
	_, text, err := s.ask(ctx, http.MethodPost, s.path(":predict"), http.Header{"Content-Type": {"application/json"}}, body)
	if err != nil {
		return nil, err
	}
	got, err := predicted(text, outputs)
	if err != nil {
		return nil, fmt.Errorf("the model server's answer: %w", err)
	}
	return pick(outputs, rows, got)
}

// encode encodes a request by columns.
func (s *Predict) encode(inputs []tensor.Tensor) ([]byte, error) {
	size := 64
	for _, t := range inputs {
		size += len(t.Name) + len(t.Data)/max(1, t.Type.Size())*12
	}
	body := append(make([]byte, 0, size), `{"signature_name":"`+s.signature+`","inputs":{`...)
	for i, t := range inputs {
		if i > 0 {
			body = append(body, ',')
		}
		name, err := json.Marshal(t.Name)
		if err != nil {
			return nil, err
		}
		body = append(append(body, name...), ':')
		if body, err = tensorjson.AppendNested(body, t); err != nil {
			return nil, &Error{Status: http.StatusBadRequest, Text: fmt.Sprintf("input %q: %v", t.Name, err)}
		}
	}
	return append(body, "}}"...), nil
}

// predicted decodes {"outputs": …}: the tensor itself if the model has one output,
// otherwise an object of tensors by name.
func predicted(text []byte, outputs []tensor.Info) (got []tensor.Tensor, err error) {
	r := tensorjson.NewReader(text)
	take := func(info tensor.Info) error {
		v := tensorjson.NewValues(info.Type)
		v.Extended = true
		if err := v.Read(r, 0); err != nil {
			return fmt.Errorf("output %q: %w", info.Name, err)
		}
		got = append(got, tensor.Tensor{Name: info.Name, Type: info.Type, Shape: v.Shape, Data: v.Data})
		return nil
	}
	err = r.Object(func(key string) error {
		if key != "outputs" {
			return r.Skip()
		}
		if r.Peek() != '{' {
			if len(outputs) != 1 {
				return fmt.Errorf("it has one output, but the model has %d", len(outputs))
			}
			return take(outputs[0])
		}
		return r.Object(func(name string) error {
			if at := slices.IndexFunc(outputs, func(o tensor.Info) bool { return o.Name == name }); at >= 0 {
				return take(outputs[at])
			}
			return r.Skip()
		})
	})
	return got, err
}
