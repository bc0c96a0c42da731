package onnxruntime

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/faas-infer/faas-infer/filelock/workdir"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// mappedFrom is the size of weights in bytes from which OpenSingle packs them and maps
// them from a file, as an instance does ([FormatPacked]).
const mappedFrom = 1 << 20

// Single is a model of few operators, loaded to be measured. It runs without
// optimisation and takes any shapes. Bind allocates its outputs once. It is not safe for
// concurrent use.
type Single struct {
	session *ort.DynamicAdvancedSession
	in, out []ort.Value
	pinned  runtime.Pinner
	data    [][]byte
}

// operatorDir is the beginning of the names of OpenSingle's temporary directories.
const operatorDir = "faas-infer-operator-"

// sweepOperators removes, once, the temporary directories of processes that were killed.
var sweepOperators = sync.OnceFunc(func() { workdir.Sweep("", operatorDir+"*") })

// OpenSingle loads a model that computes on threads threads. weights is the size of its
// initialisers in bytes. Large ones go through a temporary directory, which OpenSingle
// removes (the mapping stays). Call Load first.
func OpenSingle(m *model.Model, weights int64, threads int) (*Single, error) {
	sweepOperators()
	work, err := workdir.Make("", operatorDir)
	if err != nil {
		return nil, err
	}
	defer work.Remove()
	dir := work.Path
	path := filepath.Join(dir, "model.onnx")
	if err := m.WriteFile(path); err != nil {
		return nil, err
	}
	// No check of the signature: nothing here needs a batch dimension.
	s := signature{Inputs: m.Inputs(), Outputs: m.Outputs()}
	if weights >= mappedFrom {
		if path, err = packed(path, dir, s); err != nil {
			return nil, err
		}
	}
	session, err := sessionOf(path, s, threads, "")
	if err != nil {
		return nil, err
	}
	return &Single{session: session}, nil
}

// packed writes the model with its weights packed in a separate file, as Prepare does.
func packed(path, dir string, s signature) (string, error) {
	f := formats[FormatPacked]
	to := filepath.Join(dir, "packed.onnx")
	session, err := sessionOf(path, s, 1, to, f.save...)
	if err != nil {
		return "", err
	}
	return to, plain(session.Destroy())
}

// sessionOf loads a model without optimisation. It also saves the model at save, unless
// that is "".
func sessionOf(path string, s signature, threads int, save string, settings ...setting) (*ort.DynamicAdvancedSession, error) {
	options, err := newOptions(threads, ort.GraphOptimizationLevelDisableAll, append(s.settings(), settings...)...)
	if err != nil {
		return nil, err
	}
	defer options.Destroy()
	if save != "" {
		if err := options.SetOptimizedModelFilePath(save); err != nil {
			return nil, plain(err)
		}
	}
	return newSession(form{path: path, signature: s}, options)
}

// Bind sets the inputs and the outputs' shapes for the next runs, in the model's order.
// An output whose shape is nil is allocated again in each run.
func (s *Single) Bind(inputs, outputs []tensor.Tensor) error {
	s.release()
	for _, t := range inputs {
		v, err := s.value(t)
		if err != nil {
			return fmt.Errorf("input %q: %w", t.Name, err)
		}
		s.in = append(s.in, v)
	}
	for _, t := range outputs {
		if t.Shape == nil {
			s.out = append(s.out, nil)
			continue
		}
		size, err := bytesOf(t.Type, t.Shape)
		if err != nil {
			return fmt.Errorf("output %q: %w", t.Name, err)
		}
		t.Data = make([]byte, size)
		v, err := s.value(t)
		if err != nil {
			return fmt.Errorf("output %q: %w", t.Name, err)
		}
		s.out = append(s.out, v)
	}
	return nil
}

// value wraps a tensor. It refuses one without elements, which has no address.
func (s *Single) value(t tensor.Tensor) (ort.Value, error) {
	if len(t.Data) > 0 {
		s.data = append(s.data, t.Data)
		return newValue(t.Type, ort.Shape(t.Shape), t.Data, &s.pinned)
	}
	return nil, errors.New("the tensor has no elements")
}

// Run computes the bound inputs once.
func (s *Single) Run() error {
	for _, v := range s.out {
		if v == nil {
			return s.runFresh()
		}
	}
	return plain(s.session.Run(s.in, s.out))
}

// runFresh runs once and lets ONNX Runtime allocate the outputs of unknown shapes.
func (s *Single) runFresh() error {
	out := append([]ort.Value(nil), s.out...)
	err := plain(s.session.Run(s.in, out))
	for i, v := range out {
		if s.out[i] == nil && v != nil {
			v.Destroy()
		}
	}
	return err
}

func (s *Single) release() {
	destroy(s.in)
	destroy(s.out)
	s.pinned.Unpin()
	s.in, s.out, s.data = nil, nil, nil
}

// Close frees the model.
func (s *Single) Close() error {
	s.release()
	return plain(s.session.Destroy())
}
