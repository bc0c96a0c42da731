package protocol

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/tensorjson"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// wantedOutput is one output that the client asked for.
type wantedOutput struct {
	// at is its position among the model's outputs.
	at int
	// binary says that its elements follow the JSON part.
	binary bool
	// classes is how many of the highest elements of each row it is answered with, in the form
	// of the classification extension, 0 for the output itself.
	classes int
}

// wanted returns the outputs that a request asks for, all if it names none.
func (m *Model) wanted(request inferRequest) ([]wantedOutput, error) {
	var wanted []wantedOutput
	if len(request.outputs) == 0 {
		for at := range m.Outputs {
			wanted = append(wanted, wantedOutput{at: at, binary: request.parameters.BinaryDataOutput})
		}
		return wanted, nil
	}
	for _, o := range request.outputs {
		at := m.output(o.Name)
		if at < 0 {
			return nil, fmt.Errorf("the model has no output %.100q; it has %s", o.Name, describeAll(m.Outputs))
		}
		if slices.ContainsFunc(wanted, func(w wantedOutput) bool { return w.at == at }) {
			return nil, fmt.Errorf("output %q is requested twice", o.Name)
		}
		classes, err := o.Parameters.classes(m.Outputs[at])
		if err != nil {
			return nil, fmt.Errorf("output %q: %w", o.Name, err)
		}
		binary := request.parameters.BinaryDataOutput
		if o.Parameters.BinaryData != nil {
			binary = *o.Parameters.BinaryData
		}
		wanted = append(wanted, wantedOutput{at, binary, classes})
	}
	return wanted, nil
}

// answerInfer makes a call answer in the Open Inference Protocol. name is what the request calls
// the model, id the request's own id.
func (c *Call) answerInfer(m *Model, name, id string, wanted []wantedOutput) {
	c.asJSON = nil
	for _, w := range wanted {
		if !w.binary && w.classes == 0 {
			c.asJSON = append(c.asJSON, w.at)
		}
	}
	c.encode = func(outputs []tensor.Tensor) (frame.Response, error) {
		outputs, err := classify(m.Outputs, m.Labels, wanted, outputs)
		if err != nil {
			return frame.Response{}, err
		}
		return m.encodeInfer(name, id, wanted, outputs)
	}
}

func (m *Model) output(name string) int {
	for i := range m.Outputs {
		if m.Outputs[i].Name == name {
			return i
		}
	}
	return -1
}

// encodeInfer writes an inference response of the Open Inference Protocol. name is what the
// request calls the model.
func (m *Model) encodeInfer(name, id string, wanted []wantedOutput, outputs []tensor.Tensor) (frame.Response, error) {
	body := make([]byte, 0, len(name)+m.estimate(wanted, outputs))
	body = append(body, `{"model_name":`...)
	body = appendString(body, name)
	body = append(body, `,"model_version":"`+modelVersion+`"`...)
	if id != "" {
		body = append(body, `,"id":`...)
		body = appendString(body, id)
	}
	body = append(body, `,"outputs":[`...)
	var err error
	for i, w := range wanted {
		if i > 0 {
			body = append(body, ',')
		}
		if body, err = appendOutput(body, outputs[w.at], w.binary); err != nil {
			return frame.Response{}, fmt.Errorf("output %q: %w", outputs[w.at].Name, err)
		}
	}
	body = append(body, "]}"...)
	response := answer(http.StatusOK, body)
	length := len(body)
	for _, w := range wanted {
		if w.binary {
			response.Body = append(response.Body, outputs[w.at].Data...)
			response.Header["Content-Type"] = []string{"application/octet-stream"}
			response.Header[lengthHeader] = []string{strconv.Itoa(length)}
		}
	}
	return response, nil
}

// estimate returns the response's approximate length without the name, so its buffer rarely grows.
func (m *Model) estimate(wanted []wantedOutput, outputs []tensor.Tensor) int {
	n := 96
	for _, w := range wanted {
		n += 128 + len(outputs[w.at].Name)
		if w.binary {
			n += len(outputs[w.at].Data)
		} else {
			n += textSize(outputs[w.at])
		}
	}
	return n
}

func appendOutput(to []byte, t tensor.Tensor, binary bool) ([]byte, error) {
	to = append(to, `{"name":`...)
	to = appendString(to, t.Name)
	to = append(to, `,"datatype":"`...)
	to = append(to, t.Type...)
	to = append(to, `","shape":`...)
	to = append(to, describeShape(t.Shape)...)
	if binary {
		to = append(to, `,"parameters":{"binary_data_size":`...)
		to = strconv.AppendInt(to, int64(len(t.Data)), 10)
		return append(to, "}}"...), nil
	}
	to = append(to, `,"data":`...)
	to, err := tensorjson.AppendFlat(to, t)
	return append(to, '}'), err
}

func appendString(to []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil { // A string always has a JSON form.
		panic(err)
	}
	return append(to, text...)
}
