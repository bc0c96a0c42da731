// Package convert converts models of Keras, TensorFlow, PyTorch, scikit-learn, XGBoost,
// LightGBM and CatBoost to ONNX, and models of Keras to SavedModels. It runs those projects' own converters in a private virtual
// environment, which package environment installs. Before it writes the new model, it
// compares it with the old one on random inputs. INFless §4 has such a tool beside its
// templates. Begin with [Run].
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
	// In is a file of one of the [Kind]s, or a SavedModel's directory. Its content says which,
	// and not its name. Out is an ONNX file (.onnx) or the directory of a SavedModel.
	In, Out string
	// Inputs give the names, types and shapes that the model leaves open, or, as in
	// TorchScript, does not record.
	Inputs []tensor.Info
	// Signature is a SavedModel's signature, "" for serving_default or the only one.
	Signature string
	// Opset is the version of ONNX's operators, 0 for the converter's default.
	Opset int
	// Trust allows code in the file to run: pickled models, Lambda layers.
	Trust bool
	// Complete leaves rows with missing values (NaN) out of the comparison.
	Complete bool
	// Replace allows Out to exist already.
	Replace bool
	// Batches are the batch sizes for the comparison, nil for the defaults. Integer inputs are random numbers
	// below Below. Seed seeds the random inputs.
	Batches []int
	Below   int
	Seed    uint64
	// Tolerance is the maximum [Difference] with which Run writes Out.
	Tolerance float64
	// Log receives the converters' output. Step is called with the name of each step.
	Log  io.Writer
	Step func(string)
}

// Result describes a conversion.
type Result struct {
	// From is the kind of the old model, To that of the new one.
	From, To Kind
	Inputs   []tensor.Info
	Outputs  []string
	// Opset is 0 for a SavedModel.
	Opset int
	// Versions holds the versions of the converters, by package.
	Versions map[string]string
	// Notes are what the converter says to the user, for example that another version wrote a
	// pickled model.
	Notes []string
	// Differences has one entry for each output of numbers and batch size.
	Differences []Difference
	// Bytes is the size of the new model.
	Bytes int64
}

// Largest returns the largest of the differences.
func (r *Result) Largest() float64 {
	largest := 0.0
	for _, d := range r.Differences {
		largest = max(largest, d.Largest)
	}
	return largest
}

// where says that only rows with missing values differ, or nothing.
func (r *Result) where(tolerance float64) string {
	for _, d := range r.Differences {
		if !d.Missing && !(d.Largest <= tolerance) {
			return ""
		}
	}
	return " for rows with missing values (NaN), which --no-missing leaves out"
}

// ErrDifferent is wrapped by Run's error if the models' outputs differ too much.
var ErrDifferent = errors.New("the converted model does not answer as the old one")

// Run converts the model, compares both and writes Out. If the error wraps
// [ErrDifferent], it returns the result, too, but writes nothing. For operators that
// cannot be converted, the error is an [UnsupportedError]. Load ONNX Runtime first.
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
		return nil, fmt.Errorf("make a work directory beside %s: %w", o.Out, err)
	}
	defer os.RemoveAll(work)
	made := filepath.Join(work, filepath.Base(o.Out))
	done, err := o.call(ctx, e, job{From: from, To: to, work: work, Out: made})
	if err != nil {
		return nil, err
	}
	r := &Result{From: from, To: to, Inputs: done.Inputs, Outputs: done.Outputs, Opset: done.Opset, Versions: done.Versions, Notes: done.Notes}
	if r.Differences, err = o.compare(ctx, work, made, to, done); err != nil {
		return nil, err
	}
	if r.Bytes, err = size(made); err != nil {
		return nil, err
	}
	if largest := r.Largest(); !(largest <= o.Tolerance) {
		return r, fmt.Errorf("%w%s: the largest difference is %.3g, but the tolerance is %g; %s was not written; give a larger --tolerance if the difference does not matter, or serve the model as it is with the template python-infer", ErrDifferent, r.where(o.Tolerance), largest, o.Tolerance, o.Out)
	}
	return r, o.place(made)
}

// check checks the options and returns both models' kinds.
func (o Options) check() (from, to Kind, err error) {
	if from, err = source(o.In); err != nil {
		return 0, 0, err
	}
	if to, err = target(o.Out); err != nil {
		return 0, 0, err
	}
	switch {
	case to == SavedModel && from != Keras:
		return 0, 0, fmt.Errorf("%s is %v, which cannot become a SavedModel; name a .onnx file instead of %s", o.In, from, o.Out)
	case from == Pickle && !o.Trust:
		return 0, 0, fmt.Errorf("%s is a Python pickle, and loading it runs code that is in it; if you trust the file, give --trust; otherwise convert the model with skl2onnx where it was made", o.In)
	case o.Signature != "" && from != SavedModel:
		return 0, 0, fmt.Errorf("only a SavedModel has signatures, but %s is %v; leave out the signature", o.In, from)
	case o.Opset != 0 && (o.Opset < 13 || o.Opset > 23):
		return 0, 0, fmt.Errorf("the opset is %d; it must be between 13 and 23", o.Opset)
	case o.Below < 1 || !(o.Tolerance >= 0):
		return 0, 0, errors.New("the comparison needs a limit for integers of at least 1, and a tolerance of at least 0")
	}
	for _, rows := range o.Batches {
		if rows < 1 || rows > 1024 {
			return 0, 0, fmt.Errorf("the batch size for the comparison is %d; it must be between 1 and 1024", rows)
		}
	}
	if _, err := os.Stat(o.Out); err == nil && !o.Replace {
		return 0, 0, fmt.Errorf("%s already exists; remove it, or replace it with --force", o.Out)
	}
	return from, to, nil
}

// batches returns the batch sizes of the comparison.
func (o Options) batches(from Kind) []int {
	if len(o.Batches) == 0 {
		return from.converter().batches
	}
	return o.Batches
}

// environment returns the converters' virtual environment and installs it if it is
// missing.
func (o Options) environment(ctx context.Context, from Kind) (environment.Environment, error) {
	c := from.converter()
	e, err := environment.Find(ctx, c.engine, "")
	if err != nil || e.Made() {
		return e, err
	}
	o.Step("installing " + c.packages + ", once")
	return environment.Ensure(ctx, c.engine, "")
}

// place moves the new model to Out. The move is atomic for a file. If it fails for a
// directory, the old one is put back.
func (o Options) place(made string) error {
	info, err := os.Stat(o.Out)
	if err != nil || !info.IsDir() {
		return os.Rename(made, o.Out)
	}
	old := made + ".old"
	if err := os.Rename(o.Out, old); err != nil {
		return err
	}
	if err := os.Rename(made, o.Out); err != nil {
		return errors.Join(err, os.Rename(old, o.Out))
	}
	return nil
}

// size returns the size in bytes of a file, or of all files in a directory.
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

// engineOf opens the new model as an instance does.
func engineOf(path string) (*onnxruntime.Engine, error) {
	engine, err := onnxruntime.Open(onnxruntime.Options{Model: path, Threads: 1})
	if err != nil {
		return nil, fmt.Errorf("the model was converted, but ONNX Runtime cannot load it: %w", errors.New(strings.ReplaceAll(err.Error(), path, filepath.Base(path))))
	}
	return engine, nil
}
