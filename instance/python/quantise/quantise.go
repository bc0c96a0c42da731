// Package quantise makes int8 models of an ONNX model with ONNX Runtime's quantizer, which
// runs in a private virtual environment of package environment. It does not judge them: who
// calls it measures their accuracy and time. INFaaS §3.2 has such a generator. Begin with
// [Run].
package quantise

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/instance/python/script"
	"github.com/faas-infer/faas-infer/model/tensor"
)

//go:embed scripts/*.py
var scripts embed.FS

// Version changes whenever the models that Run makes change.
const Version = "2"

// engine names the environment's requirements.
const engine = "quantise"

// The ways to quantise.
const (
	// Static has fixed ranges of activations, from calibration.
	Static = "static"
	// Weights has int8 weights of matrix products, and activations in float.
	Weights = "weights"
)

// Options say what to quantise.
type Options struct {
	// Model is the ONNX file. Work is an existing directory, which gets the new models.
	Model, Work string
	// Rows are inputs for the calibration, with all rows of each in one tensor.
	Rows []tensor.Tensor
	// Log receives the quantizer's output. Step is called with the name of each step.
	Log  io.Writer
	Step func(string)
	// Start runs the quantizer's process to its end, nil for [exec.Cmd.Run].
	Start func(*exec.Cmd) error
}

// Made is a new model.
type Made struct {
	// Way is [Static] or [Weights].
	Way string `json:"way"`
	// File is its path.
	File string `json:"file"`
	// Float names the sensitive operators that were left in float.
	Float []string `json:"float"`
	// Error says why there is no file, "" if there is one.
	Error string `json:"error"`
}

// ErrNothing is wrapped by Run's error if the model has no int8 form.
var ErrNothing = errors.New("there is no int8 model")

// Run quantises the model in every way that suits its operators.
func Run(ctx context.Context, o Options) ([]Made, error) {
	e, err := o.environment(ctx)
	if err != nil {
		return nil, err
	}
	job, err := o.job()
	if err != nil {
		return nil, err
	}
	last, err := script.Run(ctx, script.Options{
		Python: e.Python, Scripts: scripts, Name: "quantise.py", Dir: o.Work, Job: job, Log: o.Log, Step: o.Step, Start: o.Start,
	})
	if err != nil {
		return nil, err
	}
	if last.Error != "" {
		return nil, fmt.Errorf("%w: %s", ErrNothing, last.Error)
	}
	var done struct {
		Made []Made `json:"made"`
	}
	if err := json.Unmarshal(last.Done, &done); err != nil {
		return nil, fmt.Errorf("the quantizer's result: %w", err)
	}
	for i := range done.Made {
		done.Made[i].File = filepath.Join(o.Work, filepath.Base(done.Made[i].File))
	}
	return done.Made, nil
}

// environment returns the quantizer's virtual environment, and installs it if it is missing.
func (o Options) environment(ctx context.Context) (environment.Environment, error) {
	e, err := environment.Find(ctx, engine, "")
	if err != nil || e.Made() {
		return e, err
	}
	o.Step("installing ONNX Runtime's quantizer (60 MB), once")
	return environment.Ensure(ctx, engine, "")
}

// row names the file of an input's rows.
type row struct {
	Name string `json:"name"`
	File string `json:"file"`
}

// job writes the rows and encodes the script's input.
func (o Options) job() ([]byte, error) {
	var rows []row
	for i, t := range o.Rows {
		text, err := protocol.AppendNPY(nil, t)
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", t.Name, err)
		}
		file := fmt.Sprintf("rows-%d.npy", i)
		if err := os.WriteFile(filepath.Join(o.Work, file), text, 0o600); err != nil {
			return nil, err
		}
		rows = append(rows, row{t.Name, file})
	}
	in, err := filepath.Abs(o.Model)
	if err != nil {
		return nil, err
	}
	work, err := filepath.Abs(o.Work)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"in": in, "work": work, "rows": rows})
}
