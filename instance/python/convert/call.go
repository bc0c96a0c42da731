package convert

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/instance/python/script"
	"github.com/faas-infer/faas-infer/model/tensor"
)

//go:embed scripts/*.py
var scripts embed.FS

// job is one conversion for a script.
type job struct {
	From, To Kind
	Out      string
	work     string
}

// result is what a script reports at its end.
type result struct {
	Inputs  []tensor.Info `json:"inputs"`
	Outputs []string      `json:"outputs"`
	// Compared names the outputs in Cases, nil for all. Part is a file with the ONNX model
	// without the others, "" for the model itself. Notes are for the user.
	Compared []string          `json:"compared"`
	Part     string            `json:"part"`
	Notes    []string          `json:"notes"`
	Opset    int               `json:"opset"`
	Versions map[string]string `json:"versions"`
	Cases    []files           `json:"cases"`
}

// files names the files of the arrays of one batch size, in the work directory.
type files struct {
	Rows int `json:"rows"`
	// Missing: some of the inputs are NaN.
	Missing bool     `json:"missing"`
	Inputs  []string `json:"inputs"`
	Old     []string `json:"old"`
	New     []string `json:"new"`
}

// event is the last line of a script's output.
type event struct {
	Done      *result    `json:"done"`
	Error     string     `json:"error"`
	Operators []Operator `json:"operators"`
}

// Operator is an operator that ONNX or the converter lacks.
type Operator struct {
	// Type is its name in the model's framework.
	Type string `json:"type"`
	// Count is the number of such nodes in the model, if known.
	Count int `json:"count"`
	// Example is the name of one such node, "" if unknown.
	Example string `json:"example"`
}

// UnsupportedError lists the operators that prevent a conversion.
type UnsupportedError struct {
	Reason    string
	Operators []Operator
}

// Error names the operators and the remedies.
func (e *UnsupportedError) Error() string {
	var names []string
	for _, o := range e.Operators {
		name := o.Type
		if o.Example != "" {
			name += fmt.Sprintf(" (%d times, for example %s)", o.Count, o.Example)
		}
		names = append(names, name)
	}
	return fmt.Sprintf("%s: %s. Replace them in the model, or serve the model unconverted with engine: tensorflow or python", e.Reason, strings.Join(names, ", "))
}

// A converter's process may have baseMemory bytes, which its libraries take part of, and
// modelMemory times the model's size more.
const (
	baseMemory  = 8 << 30
	modelMemory = 24
)

// call runs the converter's script in a process.
func (o Options) call(ctx context.Context, e environment.Environment, j job) (*result, error) {
	request, err := o.request(j)
	if err != nil {
		return nil, err
	}
	bytes, err := size(o.In)
	if err != nil {
		return nil, err
	}
	last, err := script.Run(ctx, script.Options{
		Python: e.Python, Scripts: scripts, Name: j.From.converter().script, Dir: j.work, Job: request, Log: o.Log, Step: o.Step,
		Memory: baseMemory + modelMemory*bytes,
	})
	if err != nil {
		return nil, err
	}
	return read(last)
}

// read reads the result of a script, or its error.
func read(last script.Event) (*result, error) {
	var e event
	if err := json.Unmarshal(last.Line, &e); err != nil {
		return nil, fmt.Errorf("the converter's result: %w", err)
	}
	switch {
	case len(e.Operators) > 0:
		return nil, &UnsupportedError{Reason: e.Error, Operators: e.Operators}
	case e.Error != "":
		return nil, errors.New(e.Error)
	}
	return e.Done, nil
}

// request encodes the job for the script.
func (o Options) request(j job) ([]byte, error) {
	in, err := filepath.Abs(o.In)
	if err != nil {
		return nil, err
	}
	out, err := filepath.Abs(j.Out)
	if err != nil {
		return nil, err
	}
	work, err := filepath.Abs(j.work)
	if err != nil {
		return nil, err
	}
	inputs := o.Inputs
	if inputs == nil {
		inputs = []tensor.Info{}
	}
	return json.Marshal(map[string]any{
		"in": in, "out": out, "work": work, "kind": kinds[j.From].name, "to": kinds[j.To].name, "inputs": inputs, "signature": o.Signature,
		"opset": o.Opset, "trust": o.Trust, "missing": !o.Complete, "batches": o.batches(j.From), "below": o.Below, "seed": o.Seed,
	})
}
