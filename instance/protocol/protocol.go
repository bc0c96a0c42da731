// Package protocol decodes the request formats of inference clients into the model's
// inputs ([Call]) and encodes the outputs as the response. It does no I/O and forms no
// batches: package instance does both. Begin with [Model.Decode].
//
// The formats are the Open Inference Protocol v2 over REST with its binary tensor
// extension (KServe, Triton), the REST predict API of TensorFlow Serving, and for models of
// texts OpenAI's embeddings and Cohere's rerank. The plain invocation of a function, POST /, takes either. It also takes a bare body: one image,
// one .npy file or one tensor's raw elements. Requests and responses may be compressed.
package protocol

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/pixels"
	"github.com/faas-infer/faas-infer/instance/tensorjson"
	"github.com/faas-infer/faas-infer/instance/text"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Model describes the served model to the protocols.
type Model struct {
	// Name is the model's name in paths and responses. If it has the form
	// name.namespace, paths may leave out the namespace.
	Name string
	// Inputs and Outputs are in the model's own order, with the model's own shapes: see [Own].
	Inputs  []tensor.Info
	Outputs []tensor.Info
	// MaxRows is the maximum number of rows in one request, 0 for any number.
	MaxRows int
	// MaxShapes has the largest sizes of inputs, the batch left out; an input that it lacks may
	// have any.
	MaxShapes tensor.Shapes
	// MaxBody is the maximum decompressed body in bytes, 0 for 32 MiB.
	MaxBody int64
	// Images converts images into the model's only input. It is nil if the deployment
	// declares no images.
	Images *pixels.Maker
	// Platform is what runs the model, as Triton names it, "" for onnxruntime_onnx.
	Platform string
	// Labels are the names of the classes by their index, for the classification extension. It
	// is nil if the model has none.
	Labels []string
	// Text reads texts for the model. It is nil if the model takes none.
	Text *text.Reader
	// Created is when the model began to be served, in seconds since 1970.
	Created int64
	// Statistics returns what the server counted so far. It is nil if it counts nothing.
	Statistics func() Statistics
}

// defaultMaxBody is the maximum decompressed body in bytes if Model.MaxBody is 0.
const defaultMaxBody = 32 << 20

// Call is one inference request.
type Call struct {
	// Rows is the request's number of rows along the batch dimension, at least 1.
	Rows int
	// Inputs are all of the model's inputs in its order, of the right types
	// and shapes. Their data may alias the request's body.
	Inputs []tensor.Tensor
	// Texts are the rows of a request of texts, instead of Inputs. Rows is their number. Their answers are for
	// [Call.RespondTexts].
	Texts []text.Row
	// Kept is what the call keeps of its body beside Inputs and Texts, in bytes.
	Kept int

	encodeTexts func(answers [][]float32) (frame.Response, error)
	encode      func(outputs []tensor.Tensor) (frame.Response, error)
	// outputs describe the outputs as clients get them.
	outputs []tensor.Info
	// asJSON are the positions of the outputs that encode writes as JSON.
	asJSON []int
	// request is the decoded request's header, without the rest.
	request frame.Request
}

// Respond encodes the response from the call's own rows of the outputs, which are in the
// model's order.
func (c *Call) Respond(outputs []tensor.Tensor) frame.Response {
	response := c.RespondPlain(outputs)
	if response.Status != http.StatusOK {
		return response
	}
	return pack(response, c.request)
}

// RespondPlain is Respond without compression.
func (c *Call) RespondPlain(outputs []tensor.Tensor) frame.Response {
	own := slices.Clone(outputs)
	for i := range own {
		var err error
		if own[i], err = Outward(c.outputs[i], own[i]); err != nil {
			return Failure(http.StatusInternalServerError, fmt.Errorf("output %w", err))
		}
	}
	response, err := c.encode(own)
	switch {
	case errors.Is(err, tensorjson.ErrNotJSON):
		// The same request would fail again. The client must ask for binary data.
		return Failure(http.StatusBadRequest, err)
	case err != nil:
		return Failure(http.StatusInternalServerError, err)
	}
	return response
}

// Failure returns the response to a request that failed. Its body is {"error": "…"}, as
// in both protocols.
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

// lengthHeader is the header of the binary tensor extension. It holds the length in bytes
// of the JSON part, which the binary tensors follow.
const lengthHeader = "Inference-Header-Content-Length"

// Decode decodes a request. An inference request becomes a Call. Any other request gets
// its response at once: the model's metadata or an error.
func (m *Model) Decode(r frame.Request) (*Call, frame.Response) {
	parts := strings.Split(strings.Trim(r.Path, "/"), "/")
	for i, part := range parts { // The path is still escaped.
		if plain, err := url.PathUnescape(part); err == nil {
			parts[i] = plain
		}
	}
	var decode func(frame.Request) (*Call, error)
	switch {
	case parts[0] == "":
		decode = m.decodeInvoke
	case isTextPath(r.Path):
		return decodeTextRoute(m, r)
	case parts[0] == "v2":
		return m.openInference(r, parts[1:])
	case parts[0] == "v1":
		return m.tensorFlow(r, parts[1:])
	default:
		return nil, Failure(http.StatusNotFound, fmt.Errorf(
			"there is no %s here; send requests to /, /v2/models/%s/infer or /v1/models/%s:predict", r.Path, m.calledBy(r), m.calledBy(r)))
	}
	return m.decodePost(r, decode)
}

// decodePost runs a decoder for a route that takes POST only.
func (m *Model) decodePost(r frame.Request, decode func(frame.Request) (*Call, error)) (*Call, frame.Response) {
	if r.Method != http.MethodPost {
		response := failureAt(r.Path, http.StatusMethodNotAllowed, fmt.Errorf("%s takes POST, not %s", r.Path, r.Method))
		response.Header.Set("Allow", http.MethodPost)
		return nil, response
	}
	if err := m.inflate(&r); err != nil {
		response := failureAt(r.Path, statusOf(err), err)
		if errors.Is(err, errCoding) {
			response.Header.Set("Accept-Encoding", acceptedCodings)
		}
		return nil, response
	}
	call, err := decode(r)
	if err == nil {
		err = call.checkJSON(m.Outputs)
	}
	if err != nil {
		return nil, failureAt(r.Path, statusOf(err), err)
	}
	call.request = frame.Request{Path: r.Path, Header: r.Header}
	return call, frame.Response{}
}

// checkJSON refuses an output as JSON that has no form there, before the model runs.
func (c *Call) checkJSON(outputs []tensor.Info) error {
	for _, at := range c.asJSON {
		if err := tensorjson.Writable(outputs[at].Type); err != nil {
			return fmt.Errorf("output %q: %w with the Open Inference Protocol, for example with the parameter "+
				"binary_data_output", outputs[at].Name, err)
		}
	}
	return nil
}

// answerJSON makes a call answer with all outputs as JSON.
func (c *Call) answerJSON(outputs []tensor.Info, encode func([]tensor.Tensor) (frame.Response, error)) {
	c.encode, c.asJSON = encode, nil
	for at := range outputs {
		c.asJSON = append(c.asJSON, at)
	}
}

// known reports whether a name in a path is this model's, with or without the namespace.
func (m *Model) known(name string) bool {
	short, _, _ := strings.Cut(m.Name, ".")
	return name == m.Name || name == short
}

// calledBy returns the name that a request has for the model, and that its answer repeats: a
// client of the Open Inference Protocol asks for a variant by its name and may check it. A
// provider that has put the function's name into the path tells that name in
// [frame.ModelHeader].
func (m *Model) calledBy(r frame.Request) string {
	return cmp.Or(r.Header.Get(frame.ModelHeader), m.Name)
}

func (m *Model) unknown(r frame.Request, name string) frame.Response {
	return Failure(http.StatusNotFound, fmt.Errorf("there is no model %q here; this is %q", name, m.calledBy(r)))
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
		if err := checkData(t, n); err != nil {
			return nil, err
		}
		call.Inputs[at] = t
	}
	for at, t := range call.Inputs {
		if t.Type == "" {
			return nil, fmt.Errorf("input %q is missing; the model takes %s", m.Inputs[at].Name, describeAll(m.Inputs))
		}
		rows := int(rowsOf(m.Inputs[at], t.Shape))
		if at > 0 && rows != call.Rows {
			return nil, fmt.Errorf("input %q has %d rows, but input %q has %d", t.Name, rows, m.Inputs[0].Name, call.Rows)
		}
		call.Rows = rows
		var err error
		if call.Inputs[at], err = Inward(m.Inputs[at], t); err != nil {
			return nil, fmt.Errorf("input %w", err)
		}
	}
	call.outputs = m.Outputs
	return call, nil
}

// checkData checks that an input's data are the elements that its shape needs.
func checkData(t tensor.Tensor, n int64) error {
	if t.Type == tensor.Bytes {
		if err := tensor.CheckStrings(t.Data, n); err != nil {
			return fmt.Errorf("input %q of the shape %s: %w", t.Name, describeShape(t.Shape), err)
		}
		return nil
	}
	if n*int64(t.Type.Size()) != int64(len(t.Data)) {
		return fmt.Errorf("input %q has %d elements, but its shape %s needs %d",
			t.Name, len(t.Data)/t.Type.Size(), describeShape(t.Shape), n)
	}
	return nil
}

// maxStrings is the maximum number of strings in one input. An empty string takes few bytes of a
// body and some hundred of an engine's memory.
const maxStrings = 1 << 20

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

// checkShape checks an input's type and shape against the model and returns the number of
// elements that it must have. It runs before the elements are decoded, so an input with a
// wrong shape costs no memory.
func (m *Model) checkShape(info tensor.Info, kind tensor.Type, shape []int64) (elements int64, err error) {
	if kind != info.Type {
		return 0, fmt.Errorf("input %q is %s; the model takes %s", info.Name, kind, describe(info))
	}
	fits := len(shape) == len(info.Shape)
	for i := 0; fits && i < len(shape); i++ {
		fits = i == batchAxis(info) || info.Shape[i] < 0 || info.Shape[i] == shape[i]
	}
	if !fits {
		return 0, fmt.Errorf("input %q has the shape %s; the model takes %s", info.Name, describeShape(shape), describe(info))
	}
	for i, most := range m.MaxShapes[info.Name] {
		if i > 0 && i < len(shape) && shape[i] > most {
			return 0, fmt.Errorf("input %q has the shape %s; dimension %d may be at most %d (com.openfaas.infer.shapes.max)", info.Name, describeShape(shape), i, most)
		}
	}
	elements, err = tensor.Elements(shape)
	if err != nil {
		return 0, fmt.Errorf("input %q: %w", info.Name, err)
	}
	if none := info.Empty || slices.Contains(info.Shape, 0); elements == 0 && (!none || rowsOf(info, shape) == 0 || tooWide(shape)) {
		return 0, fmt.Errorf("input %q is empty: its shape is %s; send at least one element", info.Name, describeShape(shape))
	}
	if info.Type == tensor.Bytes && elements > maxStrings {
		return 0, fmt.Errorf("input %q has %d strings; at most %d in one request", info.Name, elements, maxStrings)
	}
	if n := rowsOf(info, shape); m.MaxRows > 0 && n > int64(m.MaxRows) {
		return 0, fmt.Errorf("input %q has %d rows; at most %d in one request", info.Name, n, m.MaxRows)
	}
	return elements, nil
}

// tooWide reports whether the sizes beside a dimension of 0 ask for more memory than a request
// does that has elements.
func tooWide(shape []int64) bool {
	wide := int64(1)
	for _, size := range shape {
		if size > maxStrings || wide > maxStrings {
			return true
		}
		wide *= max(size, 1)
	}
	return wide > maxStrings
}

// describe formats an input for messages: image FP32 [-1,1,28,28].
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
