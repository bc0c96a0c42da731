package rig

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// Subject is a model to measure. A model of the zoo has Model and File. A model that Python
// runs has Inputs, and a bundle in Dir.
type Subject struct {
	// Name is the zoo's name of the model. File is the model's file in Dir.
	Name, File string
	Model      *model.Model
	Inputs     []tensor.Info
	Dir        string
}

// Samples returns random inputs of one request.
func (s *Subject) Samples(seed uint64) ([]tensor.Tensor, error) {
	if s.Model == nil {
		return python.Sample(s.Inputs, 1, seed), nil
	}
	return s.Model.SampleInputs(1, seed)
}

// NewSubject writes a model of the zoo into a temporary directory. Close removes it.
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

// JSONTarget makes requests like Target, with tensors as JSON.
func (s *Subject) JSONTarget(url string) (load.Target, error) {
	return s.target(url, func(inputs []tensor.Tensor) ([]byte, http.Header, error) {
		body, err := protocol.EncodeJSON(inputs)
		return body, http.Header{"Content-Type": {"application/json"}}, err
	})
}

// Target makes requests for the subject with several random inputs in turn, as binary
// tensors.
func (s *Subject) Target(url string) (load.Target, error) {
	return s.target(url, func(inputs []tensor.Tensor) ([]byte, http.Header, error) {
		body, n, err := load.EncodeBinary(inputs)
		return body, http.Header{"Content-Type": {"application/octet-stream"}, load.HeaderLength: {strconv.Itoa(n)}}, err
	})
}

func (s *Subject) target(url string, encode func([]tensor.Tensor) ([]byte, http.Header, error)) (load.Target, error) {
	t := load.Target{Name: s.Name, URL: url}
	var bodies [][]byte
	for seed := range uint64(different) {
		inputs, err := s.Samples(seed)
		if err != nil {
			return load.Target{}, err
		}
		body, header, err := encode(inputs)
		if err != nil {
			return load.Target{}, err
		}
		bodies, t.Header = append(bodies, body), header
	}
	t.Body = load.Cycle(bodies...)
	return t, nil
}

// different is the number of different requests that are sent in turn.
const different = 8

// ImageTarget makes requests of one JPEG each, in turn. The images have smooth colours and
// some 30 KB at 640 × 480.
func (s *Subject) ImageTarget(url string, width, height int) (load.Target, error) {
	var bodies [][]byte
	for seed := range different {
		var body bytes.Buffer
		if err := jpeg.Encode(&body, picture(width, height, seed), nil); err != nil {
			return load.Target{}, err
		}
		bodies = append(bodies, body.Bytes())
	}
	return load.Target{Name: s.Name, URL: url, Header: http.Header{"Content-Type": {"image/jpeg"}}, Body: load.Cycle(bodies...)}, nil
}

func picture(width, height, seed int) image.Image {
	p := image.NewRGBA(image.Rect(0, 0, width, height))
	wave := func(x, y int, by float64) uint8 {
		return uint8(128 + 60*math.Sin(float64(x*(seed+1))*by) + 60*math.Cos(float64(y*(seed+2))*by))
	}
	for y := range height {
		for x := range width {
			p.SetRGBA(x, y, color.RGBA{R: wave(x, y, 0.01), G: wave(y, x, 0.02), B: wave(x+y, x-y, 0.03), A: 255})
		}
	}
	return p
}
