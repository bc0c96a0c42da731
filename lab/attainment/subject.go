package attainment

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// objectives are the latency objectives of the models. Those of the zoo are in the paper's
// order of size.
var objectives = map[string]time.Duration{
	"mnist": 50 * time.Millisecond, "dssm": 50 * time.Millisecond, "lstm-2365": 50 * time.Millisecond,
	"resnet-50": 400 * time.Millisecond, "textcnn-69": 400 * time.Millisecond,
	"bert-small": 400 * time.Millisecond, "bert-v1": 2 * time.Second,
	handler: 100 * time.Millisecond, keras: 100 * time.Millisecond,
}

// Objective returns the latency objective of a function's model.
func (f Function) Objective() time.Duration { return objectives[f.Model] }

// The models that Python makes: a handler with a random forest of scikit-learn, and a
// multilayer perceptron of Keras.
const (
	handler = "handler"
	keras   = "keras"
)

// pythons has the engine, the requirements and the input of these models. models.py makes
// them.
var pythons = map[string]struct {
	engine, requirements string
	input                tensor.Info
}{
	handler: {bundle.EnginePython, "scikit-learn==1.8.0\n", tensor.Info{Name: "pixels", Type: tensor.FP32, Shape: []int64{-1, 64}}},
	keras:   {bundle.EngineTensorFlow, "", tensor.Info{Name: "x", Type: tensor.FP32, Shape: []int64{-1, 256}}},
}

//go:embed models.py
var pythonModels string

// Images have this size; the instance scales them to the model's input.
const (
	imageWidth, imageHeight = 640, 480
	imageAnnotation         = "224x224 fit=crop mean=0.485,0.456,0.406 std=0.229,0.224,0.225"
)

// annotations are those of a function's deployment, without the number of instances.
func (f Function) annotations() map[string]string {
	a := map[string]string{"com.openfaas.slo.latency": objectives[f.Model].String()}
	if f.Payload == Image {
		a["com.openfaas.infer.image"] = imageAnnotation
	}
	return a
}

// subject returns a model. On the first call it makes it and gives its bundle to the
// providers.
func (m *machine) subject(ctx context.Context, model string) (*rig.Subject, error) {
	if s, ok := m.subjects[model]; ok {
		return s, nil
	}
	s, err := m.make(ctx, model)
	if err != nil {
		return nil, err
	}
	m.subjects[model] = s
	err = m.server.Bundle(s, model+":latest")
	if m.fixed != nil {
		err = errors.Join(err, m.fixed.Bundle(s, model+":latest"))
	}
	return s, err
}

func (m *machine) make(ctx context.Context, model string) (*rig.Subject, error) {
	how, ok := pythons[model]
	if !ok {
		return rig.NewSubject(model)
	}
	fmt.Fprintf(m.o.Log, "making %s with Python\n", model)
	dir, err := os.MkdirTemp("", "faas-infer-bench-")
	if err != nil {
		return nil, err
	}
	s := &rig.Subject{Name: model, Dir: dir, Inputs: []tensor.Info{how.input}}
	requirements := ""
	if how.requirements != "" {
		requirements = filepath.Join(dir, "requirements.txt")
		err = os.WriteFile(requirements, []byte(how.requirements), 0o644)
	}
	var env environment.Environment
	if err == nil {
		env, err = environment.Ensure(ctx, how.engine, requirements)
	}
	if err == nil {
		if text, failed := exec.CommandContext(ctx, env.Python, "-c", pythonModels, model, dir).CombinedOutput(); failed != nil {
			err = fmt.Errorf("make %s: %w: %s", model, failed, text)
		}
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// target returns the requests to send to a function of a provider.
func (m *machine) target(ctx context.Context, f Function, at *rig.Deployed) (load.Target, error) {
	s, err := m.subject(ctx, f.Model)
	if err != nil {
		return load.Target{}, err
	}
	url := at.URL + "/function/" + f.name()
	var t load.Target
	switch f.Payload {
	case JSON:
		t, err = s.JSONTarget(url)
	case Image:
		t, err = s.ImageTarget(url, imageWidth, imageHeight)
	default:
		t, err = s.Target(url)
	}
	t.Name, t.SLO, t.Arrivals = f.name(), objectives[f.Model], load.Poisson
	return t, err
}
