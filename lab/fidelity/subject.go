package fidelity

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// Function is a function of the comparison.
type Function struct {
	// Name is the name of the function and of its model in the zoo.
	Name     string
	SLO      time.Duration
	MaxBatch int
}

// Subject is a function with its model and the requests that it gets.
type Subject struct {
	Function
	model *model.Model
	// Bodies are sent in turn, each with Header.
	Bodies [][]byte
	Header http.Header
}

// inputs is the number of different requests that are sent in turn.
const inputs = 8

// newSubject makes a function's model and its requests.
func newSubject(f Function) (*Subject, error) {
	m, err := zoo.Make(f.Name, 1)
	if err != nil {
		return nil, err
	}
	s := &Subject{Function: f, model: m}
	for seed := range uint64(inputs) {
		in, err := m.SampleInputs(1, seed)
		if err != nil {
			return nil, fmt.Errorf("inputs of %s: %w", f.Name, err)
		}
		body, length, err := load.EncodeBinary(in)
		if err != nil {
			return nil, fmt.Errorf("inputs of %s: %w", f.Name, err)
		}
		s.Bodies = append(s.Bodies, body)
		s.Header = http.Header{"Content-Type": {"application/octet-stream"}, load.HeaderLength: {strconv.Itoa(length)}}
	}
	return s, nil
}

// target returns a load of the function.
func (s *Subject) target(url string, rate float64) load.Target {
	return load.Target{Name: s.Name, URL: url + "/function/" + s.Name, Header: s.Header, Body: load.Cycle(s.Bodies...), SLO: s.SLO, Rate: rate, Arrivals: load.Poisson}
}

// seconds returns a duration of s seconds.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
