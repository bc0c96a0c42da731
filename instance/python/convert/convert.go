// Package convert makes ONNX models of what Keras, TensorFlow and PyTorch wrote, and
// SavedModels of Keras', by those projects' own converters in a private virtual
// environment. The new model is run beside the old one on random inputs before it
// is put in its place (INFless §4 has such a tool beside its templates).
package convert

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Options say what to convert into what.
type Options struct {
	// In is a Keras file (.keras, .h5), a SavedModel's directory, or PyTorch's (.pt2,
	// .pt, .pth). Out is an ONNX file (.onnx) or the directory of a SavedModel.
	In, Out string
	// Inputs give names, types and sizes where the model leaves them open or, as
	// TorchScript, does not tell them.
	Inputs []tensor.Info
	// Signature is that of a SavedModel, "" for serving_default or the only one.
	Signature string
	// Opset is the version of ONNX' operators, 0 for what the converter does best.
	Opset int
	// Trust has code run that is in the file: pickled modules, Lambda layers.
	Trust bool
	// Replace has Out written where there is something already.
	Replace bool
	// Batches are the sizes with which old and new are compared, Below what inputs
	// of whole numbers stay below, Seed that of the random inputs.
	Batches []int
	Below   int
	Seed    uint64
	// Tolerance is the largest [Difference] with which Out is written.
	Tolerance float64
	// Log gets all that the converters print; Step is told what is being done.
	Log  io.Writer
	Step func(string)
}

// Result tells of a conversion.
type Result struct {
	// From is what the model was, To what it became.
	From, To Kind
	Inputs   []tensor.Info
	Outputs  []string
	// Opset is 0 for a SavedModel.
	Opset int
	// Versions are those of the converters, by package.
	Versions map[string]string
	// Differences are by output and batch size.
	Differences []Difference
	// Bytes is the size of what was written.
	Bytes int64
}

// Largest is the largest of the differences.
func (r *Result) Largest() float64 {
	largest := 0.0
	for _, d := range r.Differences {
		largest = max(largest, d.Largest)
	}
	return largest
}

// ErrDifferent is wrapped where the new model does not answer as the old one.
var ErrDifferent = errors.New("the converted model does not answer as the old one")

// Run converts, compares, and puts Out in its place. With [ErrDifferent] there is a
// result, too, and nothing was written; operators that cannot be converted are an
// [UnsupportedError]. ONNX Runtime has to be loaded.
func Run(ctx context.Context, o Options) (*Result, error) {
	from, to, err := o.check()
	if err != nil {
		return nil, err
	}
	e, err := o.environment(ctx, from)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(o.Out), 0o755); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(filepath.Dir(o.Out), ".convert-")
	if err != nil {
		return nil, fmt.Errorf("a directory to work in, beside %s: %w", o.Out, err)
	}
	defer os.RemoveAll(work)
	made := filepath.Join(work, filepath.Base(o.Out))
	told, err := o.call(ctx, e, job{From: from, To: to, work: work, Out: made})
	if err != nil {
		return nil, err
	}
	r := &Result{From: from, To: to, Inputs: told.Inputs, Outputs: told.Outputs, Opset: told.Opset, Versions: told.Versions}
	if r.Differences, err = o.compare(ctx, work, made, to, told); err != nil {
		return nil, err
	}
	if r.Bytes, err = size(made); err != nil {
		return nil, err
	}
	if largest := r.Largest(); !(largest <= o.Tolerance) {
		return r, fmt.Errorf("%w: the largest difference is %.3g, and %g is tolerated; %s was not written", ErrDifferent, largest, o.Tolerance, o.Out)
	}
	return r, o.place(made)
}

// check finds what is to be done.
func (o Options) check() (from, to Kind, err error) {
	if from, err = source(o.In); err != nil {
		return 0, 0, err
	}
	if to, err = target(o.Out); err != nil {
		return 0, 0, err
	}
	switch {
	case to == SavedModel && from != Keras:
		return 0, 0, fmt.Errorf("%s is %v, of which a SavedModel cannot be made; name a .onnx file in the place of %s", o.In, from, o.Out)
	case o.Signature != "" && from != SavedModel:
		return 0, 0, fmt.Errorf("a signature is chosen of a SavedModel, and %s is %v", o.In, from)
	case o.Opset != 0 && (o.Opset < 13 || o.Opset > 23):
		return 0, 0, fmt.Errorf("the opset is %d; it has to be between 13 and 23", o.Opset)
	case o.Below < 1 || len(o.Batches) == 0 || !(o.Tolerance >= 0):
		return 0, 0, errors.New("there has to be a batch size to compare with, whole numbers below 1 or more, and a tolerance of 0 or more")
	}
	for _, rows := range o.Batches {
		if rows < 1 || rows > 1024 {
			return 0, 0, fmt.Errorf("the batch size %d cannot be compared with; give 1 to 1024", rows)
		}
	}
	if _, err := os.Stat(o.Out); err == nil && !o.Replace {
		return 0, 0, fmt.Errorf("%s is there already; remove it, or have it replaced (--force)", o.Out)
	}
	return from, to, nil
}

// environment makes the converters' virtual environment unless it is there.
func (o Options) environment(ctx context.Context, from Kind) (environment.Environment, error) {
	engine := from.engine()
	e, err := environment.Find(ctx, engine, "")
	if err != nil || e.Made() {
		return e, err
	}
	o.Step("installing " + from.converters() + ", once")
	return environment.Ensure(ctx, engine, "")
}

// place moves what was made to where it is wanted, at once if that is a file.
func (o Options) place(made string) error {
	if info, err := os.Stat(o.Out); err == nil && info.IsDir() {
		old := made + ".old"
		if err := os.Rename(o.Out, old); err != nil {
			return err
		}
	}
	return os.Rename(made, o.Out)
}

// size is a file's, or that of all files in a directory.
func size(path string) (int64, error) {
	var total int64
	err := filepath.WalkDir(path, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		total += info.Size()
		return err
	})
	return total, err
}

// engineOf opens what was made as an instance does.
func engineOf(path string) (*onnxruntime.Engine, error) {
	engine, err := onnxruntime.Open(onnxruntime.Options{Model: path, Threads: 1})
	if err != nil {
		return nil, fmt.Errorf("the model was converted, and the engine does not take it: %w", errors.New(strings.ReplaceAll(err.Error(), path, filepath.Base(path))))
	}
	return engine, nil
}
