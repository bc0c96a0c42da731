package convert

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Difference is the difference between the models in one output at one batch size.
type Difference struct {
	Output string
	Rows   int
	// Missing: some of the inputs are missing values, NaN.
	Missing bool
	// Largest is the maximum of |new − old| / max(1, |old|) over the elements: relative
	// for numbers above 1, absolute for smaller ones. It is infinite if an element is
	// finite in only one of the two.
	Largest float64
}

// compare compares the outputs of both models for the same inputs. It runs an ONNX model
// itself. The script has already run the old model, and a new SavedModel.
func (o Options) compare(ctx context.Context, work, made string, to Kind, t *result) ([]Difference, error) {
	var engine *onnxruntime.Engine
	if len(t.Cases) > 0 && to == ONNX {
		var err error
		if t.Part != "" {
			made = filepath.Join(work, t.Part)
		}
		if engine, err = engineOf(made); err != nil {
			return nil, err
		}
		defer engine.Close()
		o.Step("running the new model in ONNX Runtime and comparing it with the old one")
	}
	outputs := t.Outputs
	if t.Compared != nil {
		outputs = t.Compared
	}
	var all []Difference
	for _, c := range t.Cases {
		old, err := load(work, c.Old, outputs)
		if err != nil {
			return nil, err
		}
		fresh, err := load(work, c.New, outputs)
		if engine != nil && err == nil {
			fresh, err = run(ctx, engine, work, c, t)
		}
		if err != nil {
			return nil, fmt.Errorf("a batch of %d: %w", c.Rows, err)
		}
		found, err := differences(c, old, fresh)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// run runs one batch on the engine.
func run(ctx context.Context, engine *onnxruntime.Engine, work string, c files, t *result) ([]tensor.Tensor, error) {
	var names []string
	for _, i := range t.Inputs {
		names = append(names, i.Name)
	}
	known, err := load(work, c.Inputs, names)
	if err != nil {
		return nil, err
	}
	var inputs []tensor.Tensor
	for _, want := range engine.Inputs() {
		at := slices.IndexFunc(known, func(k tensor.Tensor) bool { return k.Name == want.Name })
		if at < 0 || known[at].Type != want.Type {
			return nil, fmt.Errorf("the converted model has the input %s of %s, but the old one has no such input", want.Name, want.Type)
		}
		in, err := protocol.Inward(want, known[at])
		if err != nil {
			return nil, err
		}
		inputs = append(inputs, in)
	}
	rows := c.Rows
	if engine.Unbatched() != "" {
		rows = 1 // The whole batch is one request.
	}
	outputs, err := engine.Run(ctx, rows, inputs)
	if err != nil {
		return nil, err
	}
	for i, o := range engine.Outputs() {
		if outputs[i], err = protocol.Outward(o, outputs[i]); err != nil {
			return nil, err
		}
	}
	return outputs, nil
}

// load reads arrays from files and sets the tensors' names to as.
func load(work string, names []string, as []string) ([]tensor.Tensor, error) {
	var all []tensor.Tensor
	for n, name := range names {
		file, err := os.ReadFile(filepath.Join(work, name))
		if err != nil {
			return nil, err
		}
		t, err := protocol.DecodeNPY(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", as[n], err)
		}
		t.Name = as[n]
		all = append(all, t)
	}
	return all, nil
}

// differences compares the outputs by name.
func differences(c files, old, fresh []tensor.Tensor) ([]Difference, error) {
	var all []Difference
	for _, o := range old {
		at := slices.IndexFunc(fresh, func(f tensor.Tensor) bool { return f.Name == o.Name })
		if at < 0 {
			return nil, fmt.Errorf("the converted model has no output %q", o.Name)
		}
		f := fresh[at]
		if o.Type == tensor.Bytes {
			return nil, fmt.Errorf("the output %q holds strings, which cannot be compared as numbers", o.Name)
		}
		if o.Type != f.Type || !slices.Equal(o.Shape, f.Shape) {
			return nil, fmt.Errorf("for a batch of %d the converted model returns %q as %s%v, the old one as %s%v", c.Rows, o.Name, f.Type, f.Shape, o.Type, o.Shape)
		}
		all = append(all, Difference{o.Name, c.Rows, c.Missing, largest(o, f)})
	}
	return all, nil
}

func largest(old, fresh tensor.Tensor) float64 {
	width, found := old.Type.Size(), 0.0
	for at := 0; at < len(old.Data); at += width {
		a, b := old.Type.Number(old.Data[at:]), fresh.Type.Number(fresh.Data[at:])
		switch {
		case a == b || math.IsNaN(a) && math.IsNaN(b):
		case math.IsNaN(a) || math.IsNaN(b) || math.IsInf(a, 0) || math.IsInf(b, 0):
			return math.Inf(1)
		default:
			found = max(found, math.Abs(b-a)/max(1, math.Abs(a)))
		}
	}
	return found
}
