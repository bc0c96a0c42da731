package rig

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/instance/tensorjson"
	"github.com/faas-infer/faas-infer/load"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// Subject is a model of the zoo, made ready in a directory of its own, or one that
// Python runs, which has no model but inputs.
type Subject struct {
	// Name is the zoo's, File the model's, in Dir.
	Name, File string
	Model      *model.Model
	Inputs     []tensor.Info
	Dir        string
}

// Samples are inputs of one request.
func (s *Subject) Samples(seed uint64) ([]tensor.Tensor, error) {
	if s.Model == nil {
		return python.Sample(s.Inputs, 1, seed), nil
	}
	return s.Model.SampleInputs(1, seed)
}

// NewSubject writes a model of the zoo into a temporary directory; Close
// removes it.
func NewSubject(name string) (*Subject, error) {
	m, err := zoo.Make(name, 1)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "faas-infer-bench-")
	if err != nil {
		return nil, err
	}
	s := &Subject{Name: name, Dir: dir, Model: m, File: filepath.Join(dir, "model.onnx")}
	if err := m.WriteFile(s.File); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close removes the directory.
func (s *Subject) Close() { os.RemoveAll(s.Dir) }

// JSONTarget is Target with tensors as JSON.
func (s *Subject) JSONTarget(url string) (load.Target, error) {
	var bodies [][]byte
	for seed := range uint64(8) {
		inputs, err := s.Samples(seed)
		if err != nil {
			return load.Target{}, err
		}
		body, err := EncodeJSON(inputs)
		if err != nil {
			return load.Target{}, err
		}
		bodies = append(bodies, body)
	}
	return load.Target{Name: s.Name, URL: url, Header: http.Header{"Content-Type": {"application/json"}}, Body: load.Cycle(bodies...)}, nil
}

// Target makes requests for the subject: several random inputs in turn.
func (s *Subject) Target(url string) (load.Target, error) {
	var bodies [][]byte
	var length int
	for seed := range uint64(8) {
		inputs, err := s.Samples(seed)
		if err != nil {
			return load.Target{}, err
		}
		body, n, err := load.EncodeBinary(inputs)
		if err != nil {
			return load.Target{}, err
		}
		bodies, length = append(bodies, body), n
	}
	header := http.Header{"Content-Type": {"application/octet-stream"}, load.HeaderLength: {strconv.Itoa(length)}}
	return load.Target{Name: s.Name, URL: url, Header: header, Body: load.Cycle(bodies...)}, nil
}

// EncodeJSON encodes an inference request of the Open Inference Protocol v2 as JSON.
func EncodeJSON(inputs []tensor.Tensor) ([]byte, error) {
	body := []byte(`{"inputs":[`)
	for i, in := range inputs {
		if i > 0 {
			body = append(body, ',')
		}
		shape, err := json.Marshal(in.Shape)
		if err != nil {
			return nil, err
		}
		body = fmt.Appendf(body, `{"name":%q,"shape":%s,"datatype":%q,"data":`, in.Name, shape, in.Type)
		if body, err = tensorjson.AppendFlat(body, in); err != nil {
			return nil, err
		}
		body = append(body, '}')
	}
	return append(body, "]}"...), nil
}
