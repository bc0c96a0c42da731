package gpu

import (
	"errors"
	"fmt"
	"runtime"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// session is a model in ONNX Runtime, on the GPU or the CPU.
type session struct {
	session *ort.DynamicAdvancedSession
	inputs  []ort.Value
	outputs int
	pinned  runtime.Pinner
}

// openSession loads the model. On the GPU it uses CUDA's execution provider, which needs an
// ONNX Runtime library built with CUDA.
func openSession(w Work) (s *session, err error) {
	if err := onnxruntime.Load(""); err != nil {
		return nil, err
	}
	m, err := model.ReadFile(w.Model)
	if err != nil {
		return nil, err
	}
	samples, err := m.SampleInputs(w.Batch, 1)
	if err != nil {
		return nil, err
	}
	options, err := sessionOptions(w.CPU)
	if err != nil {
		return nil, err
	}
	defer options.Destroy()
	s = &session{outputs: len(m.Outputs())}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	for _, t := range samples {
		v, err := s.value(t)
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", t.Name, err)
		}
		s.inputs = append(s.inputs, v)
	}
	if s.session, err = ort.NewDynamicAdvancedSession(w.Model, names(m.Inputs()), names(m.Outputs()), options); err != nil {
		return nil, fmt.Errorf("load %s: %w", w.Model, err)
	}
	return s, nil
}

func names(infos []tensor.Info) (all []string) {
	for _, i := range infos {
		all = append(all, i.Name)
	}
	return all
}

// sessionOptions puts the model on the GPU that the process sees, or on the CPU.
func sessionOptions(cpu bool) (*ort.SessionOptions, error) {
	o, err := ort.NewSessionOptions()
	if err != nil || cpu {
		return o, err
	}
	cuda, err := ort.NewCUDAProviderOptions()
	if err == nil {
		err = errors.Join(cuda.Update(map[string]string{"device_id": "0"}), o.AppendExecutionProviderCUDA(cuda), cuda.Destroy())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ONNX Runtime cannot use CUDA; set %s to a library built with CUDA: %w", onnxruntime.LibraryEnv, err), o.Destroy())
	}
	return o, nil
}

// types are the element types of the measured models.
var types = map[tensor.Type]ort.TensorElementDataType{
	tensor.FP32: ort.TensorElementDataTypeFloat, tensor.Int64: ort.TensorElementDataTypeInt64, tensor.Int32: ort.TensorElementDataTypeInt32,
}

func (s *session) value(t tensor.Tensor) (ort.Value, error) {
	kind, ok := types[t.Type]
	if !ok || len(t.Data) == 0 {
		return nil, fmt.Errorf("type %s with shape %v is not supported", t.Type, t.Shape)
	}
	s.pinned.Pin(&t.Data[0])
	return ort.NewCustomDataTensor(ort.Shape(t.Shape), t.Data, kind)
}

// run executes the model once. When it returns, the outputs are in the host's memory.
func (s *session) run() error {
	outputs := make([]ort.Value, s.outputs)
	err := s.session.Run(s.inputs, outputs)
	for _, v := range outputs {
		if v != nil {
			err = errors.Join(err, v.Destroy())
		}
	}
	return err
}

func (s *session) close() {
	for _, v := range s.inputs {
		_ = v.Destroy() // The process ends after this.
	}
	if s.session != nil {
		_ = s.session.Destroy()
	}
	s.pinned.Unpin()
}
