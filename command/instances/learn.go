package instances

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/adapt"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/provider/children"
)

// learn prepares a model in a file with the sizes of the request in another one, to the function name, and
// writes a [children.Lesson].
func learn(file, cache, library, name, request string, largest tensor.Shapes, out io.Writer) error {
	text, err := os.ReadFile(request)
	if err != nil {
		return err
	}
	requests, err := frame.DecodeRequests(text)
	if err != nil {
		return err
	}
	if len(requests) != 1 {
		return fmt.Errorf("--request has %d requests: give one", len(requests))
	}
	shapes, answer, err := requestShapes(file, name, largest, requests[0])
	if err != nil {
		return err
	}
	encode := json.NewEncoder(out).Encode
	if shapes == nil {
		return encode(answer)
	}
	if err := onnxruntime.Load(library); err != nil {
		return err
	}
	_, err = onnxruntime.Prepare(file, cache, onnxruntime.PrepareOptions{Shapes: shapes})
	if err != nil && children.Passing(err) {
		return err
	}
	if err != nil {
		_, why, found := strings.Cut(err.Error(), file+": ")
		if !found {
			why = err.Error()
		}
		return encode(children.Lesson{Status: http.StatusBadRequest, Text: fmt.Sprintf("the model does not run with the sizes of this request, %s: %s", shapes, why)})
	}
	return encode(children.Lesson{Shapes: shapes.String()})
}

// requestShapes returns the whole shapes of one row of a request. Without any the request is refused with the
// answer.
func requestShapes(file, name string, largest tensor.Shapes, r frame.Request) (shapes tensor.Shapes, answer children.Lesson, err error) {
	m, err := model.ReadOutline(file)
	if err != nil {
		return nil, answer, err
	}
	n, err := adapt.Read(m)
	if err != nil {
		return nil, answer, err
	}
	w, err := n.Wrap(nil, nil)
	if err != nil {
		return nil, answer, err
	}
	as := protocol.Model{Name: name, Inputs: protocol.Own(w.Inputs), Outputs: protocol.Own(w.Outputs), MaxShapes: largest}
	rows := n.Standard()
	if rows { // Each request has a number of rows, as with an instance.
		as.Inputs, as.Outputs = n.Inputs, n.Outputs
	}
	call, response := as.Decode(r)
	if call == nil {
		answer = children.Lesson{Status: response.Status, Text: "the sizes of the model's inputs are not known yet; the first inference request teaches them"}
		if answer.Status < http.StatusBadRequest {
			answer.Status = http.StatusServiceUnavailable
			return nil, answer, nil
		}
		var failure struct{ Error string }
		if json.Unmarshal(bytes.TrimSpace(response.Body), &failure) == nil && failure.Error != "" {
			answer.Text = failure.Error
		}
		return nil, answer, nil
	}
	shapes = tensor.Shapes{}
	for _, in := range call.Inputs {
		if shapes[in.Name] = in.Shape; !rows {
			shapes[in.Name] = in.Shape[1:]
			continue
		}
		in.Shape[0] = 1
	}
	return shapes, answer, nil
}
