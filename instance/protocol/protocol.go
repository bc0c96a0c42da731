// Package protocol speaks the request formats that inference clients use: the
// Open Inference Protocol v2 over REST with its binary tensor extension (KServe,
// Triton), the REST predict API of TensorFlow Serving, and the single invoke of
// a function, POST /, which takes either, and a bare body: one image, one .npy file
// or one tensor's elements. Bodies may come compressed and be answered so.
//
// It is plain data in, data out: a request becomes a [Call] with the model's
// inputs as one request holds them, and the outputs that belong to the call
// become its response. Batching lies between the two, in package instance.
package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/pixels"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Model is what the protocols have to know of the model that they speak for.
type Model struct {
	// Name is the model's name in paths and responses. Where it has the form
	// name.namespace, paths may leave out the namespace.
	Name string
	// Inputs and Outputs are in the model's own order.
	Inputs  []tensor.Info
	Outputs []tensor.Info
	// MaxRows is the most rows that one request may have, 0 for any number.
	MaxRows int
	// MaxBody is the largest body in bytes once it is decompressed, 0 is 32 MiB.
	MaxBody int64
	// Images makes the model's only input of images, nil where the deployment does
	// not say what of an image the model takes.
	Images *pixels.Maker
}

// defaultMaxBody is the largest decompressed body where Model says nothing.
const defaultMaxBody = 32 << 20

// Call is one inference request.
type Call struct {
	// Rows is how many rows the request has along the batch dimension, at
	// least one.
	Rows int
	// Inputs are all of the model's inputs in its order, of the right types
	// and shapes. Their data may alias the request's body.
	Inputs []tensor.Tensor

	encode func(outputs []tensor.Tensor) (frame.Response, error)
	// request is what the call was made of, without its body.
	request frame.Request
}

// Respond writes the response of the call from its own rows of the outputs,
// which are in the model's order.
func (c *Call) Respond(outputs []tensor.Tensor) frame.Response {
	response, err := c.encode(outputs)
	if err != nil {
		return Failure(http.StatusInternalServerError, err)
	}
	return pack(response, c.request)
}

// Failure is the response for a request that could not be served. Its body is
// {"error": "…"}, as both protocols have it.
func Failure(status int, err error) frame.Response {
	body, marshalErr := json.Marshal(struct {
		Error string `json:"error"`
	}{err.Error()})
	if marshalErr != nil {
		body = []byte(`{"error":"unknown"}`)
	}
	return answer(status, append(body, '\n'))
}

func answer(status int, body []byte) frame.Response {
	return frame.Response{Status: status, Body: body, Header: http.Header{"Content-Type": {"application/json"}}}
}

func answerJSON(v any) frame.Response {
	body, err := json.Marshal(v)
	if err != nil {
		return Failure(http.StatusInternalServerError, err)
	}
	return answer(http.StatusOK, append(body, '\n'))
}

// lengthHeader is the header of the binary tensor extension: the length in
// bytes of the JSON part that the binary tensors follow.
const lengthHeader = "Inference-Header-Content-Length"

// Decode reads a request. An inference request becomes a Call; every other one
// gets its response at once, be it the model's metadata or an error.
func (m *Model) Decode(r frame.Request) (*Call, frame.Response) {
	parts := strings.Split(strings.Trim(r.Path, "/"), "/")
	var decode func(frame.Request) (*Call, error)
	switch {
	case parts[0] == "":
		decode = m.decodeInvoke
	case parts[0] == "v2":
		return m.openInference(r, parts[1:])
	case parts[0] == "v1":
		return m.tensorFlow(r, parts[1:])
	default:
		return nil, Failure(http.StatusNotFound, fmt.Errorf(
			"there is no %s here; send requests to /, /v2/models/%s/infer or /v1/models/%s:predict", r.Path, m.Name, m.Name))
	}
	return m.called(r, decode)
}

// called runs a decoder for a route that takes POST only.
func (m *Model) called(r frame.Request, decode func(frame.Request) (*Call, error)) (*Call, frame.Response) {
	if r.Method != http.MethodPost {
		response := Failure(http.StatusMethodNotAllowed, fmt.Errorf("%s takes POST, not %s", r.Path, r.Method))
		response.Header.Set("Allow", http.MethodPost)
		return nil, response
	}
	if err := m.inflate(&r); err != nil {
		response := Failure(statusOf(err), err)
		if errors.Is(err, errCoding) {
			response.Header.Set("Accept-Encoding", acceptedCodings)
		}
		return nil, response
	}
	call, err := decode(r)
	if err != nil {
		return nil, Failure(statusOf(err), err)
	}
	call.request = frame.Request{Header: r.Header}
	return call, frame.Response{}
}

// known reports whether name, from a path, is this model's.
func (m *Model) known(name string) bool {
	short, _, _ := strings.Cut(m.Name, ".")
	return name == m.Name || name == short
}

func (m *Model) unknown(name string) frame.Response {
	return Failure(http.StatusNotFound, fmt.Errorf("there is no model %q here; this is %q", name, m.Name))
}

// assemble puts the inputs of a request into the model's order and checks them.
func (m *Model) assemble(given []tensor.Tensor) (*Call, error) {
	call := &Call{Inputs: make([]tensor.Tensor, len(m.Inputs))}
	for _, t := range given {
		at := m.input(t.Name)
		if at < 0 {
			return nil, m.noInput(t.Name)
		}
		if call.Inputs[at].Type != "" {
			return nil, fmt.Errorf("input %q is given twice", t.Name)
		}
		n, err := m.checkShape(m.Inputs[at], t.Type, t.Shape)
		if err != nil {
			return nil, err
		}
		if n*int64(t.Type.Size()) != int64(len(t.Data)) {
			return nil, fmt.Errorf("input %q has %d elements, its shape %s takes %d",
				t.Name, len(t.Data)/t.Type.Size(), describeShape(t.Shape), n)
		}
		call.Inputs[at] = t
	}
	for at, t := range call.Inputs {
		if t.Type == "" {
			return nil, fmt.Errorf("input %q is missing; the model takes %s", m.Inputs[at].Name, describeAll(m.Inputs))
		}
		rows := int(t.Shape[0])
		if at > 0 && rows != call.Rows {
			return nil, fmt.Errorf("input %q has %d rows, input %q has %d", t.Name, rows, m.Inputs[0].Name, call.Rows)
		}
		call.Rows = rows
	}
	return call, nil
}

// input returns an input's position by its name, -1 if there is none.
func (m *Model) input(name string) int {
	for i := range m.Inputs {
		if m.Inputs[i].Name == name {
			return i
		}
	}
	return -1
}

func (m *Model) noInput(name string) error {
	if name == base64Key && m.Images == nil {
		return errNoImages
	}
	return fmt.Errorf("the model has no input %.100q; it takes %s", name, describeAll(m.Inputs))
}

// checkShape compares an input's type and shape with what the model takes, and
// returns how many elements it has to have. It needs none of the elements, so
// that what is refused for its shape gets no memory.
func (m *Model) checkShape(info tensor.Info, kind tensor.Type, shape []int64) (elements int64, err error) {
	if kind != info.Type {
		return 0, fmt.Errorf("input %q is %s; the model takes %s", info.Name, kind, describe(info))
	}
	fits := len(shape) == len(info.Shape)
	for i := 1; fits && i < len(shape); i++ {
		fits = info.Shape[i] < 0 || info.Shape[i] == shape[i]
	}
	if !fits {
		return 0, fmt.Errorf("input %q has the shape %s; the model takes %s", info.Name, describeShape(shape), describe(info))
	}
	elements, err = tensor.Elements(shape)
	if err != nil {
		return 0, fmt.Errorf("input %q: %w", info.Name, err)
	}
	if elements == 0 {
		return 0, fmt.Errorf("input %q is empty: its shape is %s", info.Name, describeShape(shape))
	}
	if m.MaxRows > 0 && shape[0] > int64(m.MaxRows) {
		return 0, fmt.Errorf("input %q has %d rows; at most %d in one request", info.Name, shape[0], m.MaxRows)
	}
	return elements, nil
}

// describe prints an input as people write it: image FP32 [-1,1,28,28].
func describe(info tensor.Info) string {
	return info.Name + " " + string(info.Type) + " " + describeShape(info.Shape)
}

func describeAll(infos []tensor.Info) string {
	all := make([]string, len(infos))
	for i, info := range infos {
		all[i] = describe(info)
	}
	return strings.Join(all, ", ")
}

func describeShape(shape []int64) string {
	dims := make([]string, len(shape))
	for i, d := range shape {
		dims[i] = strconv.FormatInt(d, 10)
	}
	return "[" + strings.Join(dims, ",") + "]"
}
