package protocol

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/pixels"
	"github.com/faas-infer/faas-infer/instance/tensorjson"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// rawContent is the media type of a tensor's raw elements.
const rawContent = "application/octet-stream"

// decodeInvoke decodes a request to the function itself: in either protocol, or a bare
// body.
func (m *Model) decodeInvoke(r frame.Request) (*Call, error) {
	if r.Header.Get(lengthHeader) != "" {
		return m.decodeInfer(r)
	}
	call, ok, err := m.decodeBare(r)
	if !ok && m.Text != nil && isTextBody(r.Body) {
		return decodeTexts(m, r)
	}
	if !ok {
		call, err = m.decodeJSON(r)
	}
	if err != nil {
		return nil, err
	}
	return call, m.applyAccept(call, r)
}

// decodeJSON decodes a JSON body in either protocol.
func (m *Model) decodeJSON(r frame.Request) (*Call, error) {
	if m.hasFiles(r.Body) {
		return m.decodeFiles(r)
	}
	openInference, err := isOpenInference(r.Body)
	if err != nil {
		return nil, err
	}
	if openInference {
		return m.decodeInfer(r)
	}
	return m.decodePredict(r)
}

// errDecided ends the scan of a body as soon as its protocol is known.
var errDecided = errors.New("decided")

// isOpenInference reports whether a body is in the Open Inference Protocol, where
// "inputs" is a list of objects. In TensorFlow Serving's "inputs" is numbers or an object,
// or the body has "instances".
func isOpenInference(body []byte) (bool, error) {
	r := tensorjson.NewReader(body)
	var found bool
	err := r.Object(func(key string) error {
		switch key {
		case "instances":
			return errDecided
		case "inputs":
			found = r.Take('[') && r.Peek() == '{'
			return errDecided
		}
		return r.Skip()
	})
	switch {
	case errors.Is(err, errDecided):
		return found, nil
	case err != nil:
		return false, err
	}
	return false, errors.New(`the body has neither "inputs" nor "instances"`)
}

// decodeBare decodes a body that is in neither protocol: an image, a .npy file or a
// tensor's raw elements. ok is false for anything else, which should be JSON.
func (m *Model) decodeBare(r frame.Request) (call *Call, ok bool, err error) {
	kind, _, mimeErr := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if mimeErr != nil {
		kind = ""
	}
	var given tensor.Tensor
	switch {
	case isNPY(r.Body), kind == NPYContentType:
		given, err = DecodeNPY(r.Body)
	case pixels.Is(r.Body), strings.HasPrefix(kind, "image/"):
		given, err = m.image(r.Body)
	case kind == rawContent:
		given, err = m.raw(r.Body)
	default:
		return nil, false, nil
	}
	if err != nil {
		return nil, true, err
	}
	if len(m.Inputs) != 1 {
		return nil, true, fmt.Errorf("the body holds one input; the model takes %s; send them as JSON or by the Open Inference Protocol", describeAll(m.Inputs))
	}
	given.Name = m.Inputs[0].Name
	call, err = m.assemble([]tensor.Tensor{given})
	if err == nil {
		call.answerJSON(m.Outputs, encodeRows)
	}
	return call, true, err
}

// raw reads a body of the only input's raw elements. The body's length gives the number
// of rows.
func (m *Model) raw(body []byte) (tensor.Tensor, error) {
	if len(m.Inputs) != 1 {
		return tensor.Tensor{}, nil // The caller returns the error.
	}
	in := m.Inputs[0]
	if in.Type == tensor.Bytes {
		return rawString(in, body)
	}
	row := slices.Clone(in.Shape)
	if axis := batchAxis(in); axis >= 0 {
		row[axis] = 1
	}
	n, err := tensor.Elements(row)
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("raw elements have no shape, and the model takes %s; send a .npy file or use the Open Inference Protocol", describe(in))
	}
	size := n * int64(in.Type.Size())
	if size == 0 || len(body) == 0 || int64(len(body))%size != 0 {
		return tensor.Tensor{}, fmt.Errorf("input %q: the body has %d bytes; a row of %s takes %d", in.Name, len(body), describe(in), size)
	}
	if axis := batchAxis(in); axis >= 0 {
		row[axis] = int64(len(body)) / size
	}
	return tensor.Tensor{Type: in.Type, Shape: row, Data: body}, nil
}

// rawString makes a body the only element of a row. It has no length before it.
func rawString(in tensor.Info, body []byte) (tensor.Tensor, error) {
	shape := []int64{1}
	for _, d := range in.Shape[1:] {
		if d > 1 {
			return tensor.Tensor{}, fmt.Errorf("input %q: a raw body is one string, but a row of %s takes more; "+
				"send JSON or use the Open Inference Protocol", in.Name, describe(in))
		}
		shape = append(shape, 1)
	}
	return tensor.Tensor{Type: in.Type, Shape: shape, Data: tensor.AppendString(nil, body)}, nil
}

// decodeRaw decodes a request of the Open Inference Protocol without a JSON part: the
// only input's raw elements. The answer has all outputs as binary data.
func (m *Model) decodeRaw(r frame.Request) (*Call, error) {
	if len(m.Inputs) != 1 {
		return nil, fmt.Errorf("%s is 0, so the body is one input; the model takes %s", lengthHeader, describeAll(m.Inputs))
	}
	given, err := m.raw(r.Body)
	if err != nil {
		return nil, err
	}
	given.Name = m.Inputs[0].Name
	call, err := m.assemble([]tensor.Tensor{given})
	if err != nil {
		return nil, err
	}
	wanted, err := m.wanted(inferRequest{parameters: parameters{BinaryDataOutput: true}})
	call.answerInfer(m, m.calledBy(r), "", wanted)
	return call, err
}

// applyAccept makes a call to the function itself answer in the format of the client's
// Accept header: a .npy file or raw elements, of one output.
func (m *Model) applyAccept(call *Call, r frame.Request) error {
	form := ""
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		kind, _, _ := strings.Cut(part, ";")
		if kind = strings.ToLower(strings.TrimSpace(kind)); kind == NPYContentType || kind == rawContent {
			form = kind
			break
		}
		if kind == "application/json" || kind == "*/*" {
			return nil
		}
	}
	if form == "" {
		return nil
	}
	query, err := url.ParseQuery(r.Query)
	if err != nil {
		return fmt.Errorf("the query cannot be read: %w", err)
	}
	at, name := 0, query.Get("output")
	switch {
	case name != "":
		if at = m.output(name); at < 0 {
			return fmt.Errorf("the model has no output %.100q; it has %s", name, describeAll(m.Outputs))
		}
	case len(m.Outputs) != 1:
		return &refusal{http.StatusNotAcceptable, fmt.Errorf("%s holds one output, but the model has %s; name one in the query, for example ?output=%s",
			form, describeAll(m.Outputs), m.Outputs[0].Name)}
	}
	if _, err := AppendNPY(nil, tensor.Tensor{Type: m.Outputs[at].Type}); err != nil && form == NPYContentType {
		return &refusal{http.StatusNotAcceptable, fmt.Errorf("output %q: %w", m.Outputs[at].Name, err)}
	}
	call.encode = func(outputs []tensor.Tensor) (frame.Response, error) { return encodeBare(form, outputs[at]) }
	call.asJSON = nil
	return nil
}

func encodeBare(form string, t tensor.Tensor) (frame.Response, error) {
	body := t.Data
	if form == NPYContentType {
		var err error
		if body, err = AppendNPY(make([]byte, 0, len(t.Data)+256), t); err != nil {
			return frame.Response{}, fmt.Errorf("output %q: %w", t.Name, err)
		}
	}
	response := answer(http.StatusOK, body)
	response.Header["Content-Type"] = []string{form}
	return response, nil
}
