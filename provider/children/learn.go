package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/forkjoin"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/adapt"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/web"
)

var _ latency.Teachable = (*childModels)(nil)

// lesson is what "instance prepare --request" prints: the sizes of the request, if the model runs with
// them, otherwise the status and the text of the answer to it.
type lesson struct {
	Shapes string `json:"shapes,omitempty"`
	Status int    `json:"status,omitempty"`
	Text   string `json:"text,omitempty"`
}

// Learn implements [latency.Teachable]. The request is read in the child that prepares the model.
func (m *childModels) Learn(ctx context.Context, file, name, largest string, r *frame.Request) (shapes string, err error) {
	if engines.IsManifest(file) || forkjoin.IsCutting(file) {
		return "", errors.New("only an ONNX model of its own takes its sizes from a request")
	}
	fd, err := unix.MemfdCreate("request", unix.MFD_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("file for the request: %w", err)
	}
	request := os.NewFile(uintptr(fd), "request")
	defer request.Close()
	buffers, _ := frame.EncodeRequests([]frame.Request{*r})
	if _, err := buffers.WriteTo(request); err != nil {
		return "", fmt.Errorf("file for the request: %w", err)
	}
	out, err := m.runBound(ctx, foreground, boundsOf(foreground, 0, m.Bytes(file), 0), request, append([]string{"instance", "prepare", "--model", file, "--cache", m.prepared,
		"--request", inherited, "--name", name}, sizedModels{m, latency.Sizes{Max: largest}}.arguments(file)...)...)
	if errors.Is(err, errDied) || errors.Is(err, latency.ErrPermanent) {
		return "", web.Refuse(http.StatusBadRequest, "the model does not run with the sizes of this request: %v", err)
	}
	if err != nil {
		return "", err
	}
	var l lesson
	if err := json.Unmarshal(out, &l); err != nil {
		return "", fmt.Errorf("read what the process that tries sizes says: %w", err)
	}
	if l.Status != 0 {
		return "", web.Refuse(l.Status, "%s", l.Text)
	}
	return l.Shapes, nil
}

// learn prepares a model in a file with the sizes of the request in another one, to the function name, and
// writes a [lesson].
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
	if err != nil && isPassing(err) {
		return err
	}
	if err != nil {
		_, why, found := strings.Cut(err.Error(), file+": ")
		if !found {
			why = err.Error()
		}
		return encode(lesson{Status: http.StatusBadRequest, Text: fmt.Sprintf("the model does not run with the sizes of this request, %s: %s", shapes, why)})
	}
	return encode(lesson{Shapes: shapes.String()})
}

// requestShapes returns the whole shapes of one row of a request. Without any the request is refused with the
// answer.
func requestShapes(file, name string, largest tensor.Shapes, r frame.Request) (shapes tensor.Shapes, answer lesson, err error) {
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
		answer = lesson{Status: response.Status, Text: "the sizes of the model's inputs are not known yet; the first inference request teaches them"}
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
