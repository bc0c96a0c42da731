package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/python/convert"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// convertOptions are the flags of "model convert".
type convertOptions struct {
	convert.Options
	inputs        []string
	verbose, json bool
}

func newModelConvertCommand() *cobra.Command {
	var o convertOptions
	c := &cobra.Command{
		Use:   "convert IN OUT",
		Short: "Convert a Keras, TensorFlow, PyTorch, scikit-learn or tree model to ONNX, and compare both",
		Long: `convert converts a model of another framework to ONNX, which this program serves
best. The content of IN, and not its name, decides the conversion:

  IN   .keras .h5        Keras, the whole model (model.save)
       DIR               TensorFlow, a SavedModel (model.export, tf.saved_model.save)
       .pt2              PyTorch, torch.export.save
       .pt .pth          PyTorch, torch.jit.save or, with --trust, a pickled module
       .pkl .joblib      scikit-learn, with --trust, because loading a pickle runs its code
       .json .ubj        XGBoost, save_model
       .txt              LightGBM, save_model
       .cbm .json        CatBoost, save_model
  OUT  .onnx             an ONNX model
       DIR               a SavedModel, of a Keras model

convert uses the frameworks' own converters: tf2onnx, PyTorch's, Keras' and CatBoost's
exporters, skl2onnx, onnxmltools. It installs them once into a virtual environment in your
cache (a download of half a GB for TensorFlow, 3 GB for PyTorch, 0.3 GB for the others).
A model of the last four takes one input, a table of numbers, and returns labels and
probabilities as plain tensors (no ZipMap).

It then runs both models on the same random inputs, the new one as an instance would,
and prints the largest difference: |new − old| / max(1, |old|). Rows of a table lie
around the thresholds of its trees, some with missing values (NaN) if the model takes them.
If the difference exceeds --tolerance, convert writes nothing and the exit status is 1. The exit status is
also 1 if ONNX lacks some of the operators; convert names them.

The first dimension of each input is the batch and must be open: ? here, None in
Keras, torch.export.Dim('batch') in PyTorch. Other open dimensions stay open unless
--input sets them. The comparison uses 8 for them.`,
		Example: `  faas-infer model convert mnist.keras mnist.onnx
  faas-infer model convert exported/1 model.onnx --signature serving_default
  faas-infer model convert resnet.pt2 resnet.onnx
  faas-infer model convert scripted.pt scripted.onnx --input 'x=float32[?,3,224,224]'
  faas-infer model convert words.keras words.onnx --integers-below 20000
  faas-infer model convert classifier.joblib classifier.onnx --trust
  faas-infer model convert booster.ubj booster.onnx
  faas-infer model convert mnist.keras served/1`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.In, o.Out = args[0], args[1]
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringArrayVar(&o.inputs, "input", nil, "an input's name, type and shape, such as x=float32[?,3,224,224]; for .pt and .pth give each input in order, otherwise only inputs whose open sizes you set")
	f.StringVar(&o.Signature, "signature", "", "signature of a SavedModel (default serving_default, or the only one)")
	f.IntVar(&o.Opset, "opset", 0, "version of the ONNX operators (default: the converter's best, 18 for .pt2 and otherwise 17)")
	f.BoolVar(&o.Trust, "trust", false, "run code in the file: a pickled model, Lambda layers of Keras")
	f.BoolVar(&o.Complete, "no-missing", false, "the function gets no missing values: do not compare rows with NaN")
	f.BoolVar(&o.Replace, "force", false, "replace OUT if it exists")
	f.IntSliceVar(&o.Batches, "batches", nil, "batch sizes of the comparison (default 1,3,8; 1,8,256 for scikit-learn, XGBoost, LightGBM and CatBoost)")
	f.IntVar(&o.Below, "integers-below", 2, "random integer inputs are from 0 to below this, for example the number of known words; other inputs are from -1 to 1")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the random inputs")
	f.Float64Var(&o.Tolerance, "tolerance", 1e-4, "maximum difference; above it, OUT is not written")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show the converters' full output")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	return c
}

func (o *convertOptions) run(ctx context.Context, out, progress io.Writer) error {
	o.Log, o.Step = io.Discard, report.Steps(progress)
	if o.verbose {
		o.Log = progress
	}
	for _, text := range o.inputs {
		info, err := convert.ParseInput(text)
		if err != nil {
			return fmt.Errorf("--input %w", err)
		}
		o.Inputs = append(o.Inputs, info)
	}
	if err := onnxruntime.Load(""); err != nil {
		return err
	}
	r, err := convert.Run(ctx, o.Options)
	if r == nil {
		return err
	}
	for _, note := range r.Notes {
		fmt.Fprintf(progress, "warning: %s\n", note)
	}
	if o.json {
		return errors.Join(o.report(r).JSON(out), err)
	}
	return errors.Join(o.print(out, r, err == nil), err)
}

// print prints the result for people.
func (o *convertOptions) print(out io.Writer, r *convert.Result, written bool) error {
	by := versions(r.Versions)
	if written {
		opset := ""
		if r.Opset > 0 {
			opset = fmt.Sprintf(", opset %d", r.Opset)
		}
		fmt.Fprintf(out, "Wrote %s, %v of %s%s, by %s\n", o.Out, r.To, sizeOf(r.Bytes), opset, by)
	} else {
		fmt.Fprintf(out, "Converted %s by %s\n", o.In, by)
	}
	fmt.Fprintf(out, "  inputs   %s\n  outputs  %s\n\nOld against new on random inputs:\n", tensor.Describe(r.Inputs), strings.Join(r.Outputs, ", "))
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "output\tbatch\tlargest difference\t")
	for _, d := range r.Differences {
		rows := strconv.Itoa(d.Rows)
		if d.Missing {
			rows += ", some missing (NaN)"
		}
		fmt.Fprintf(w, "%s\t%s\t%.2g\t\n", d.Output, rows, d.Largest)
	}
	if err := w.Flush(); err != nil || !written {
		return err
	}
	_, err := fmt.Fprintf(out, "\nThe largest difference is %.2g, and %g is tolerated. Next: %s\n", r.Largest(), o.Tolerance, o.next(r))
	return err
}

// next returns the command or step that follows the conversion.
func (o *convertOptions) next(r *convert.Result) string {
	if r.To == convert.ONNX {
		return fmt.Sprintf("faas-infer model check %s --slo 50ms", o.Out)
	}
	return fmt.Sprintf("name it in a bundle.yaml beside it (engine: tensorflow, model: %s), then faas-infer model check its directory", filepath.Base(o.Out))
}

// sizeOf prints a file's size, in KiB below 1 MiB.
func sizeOf(bytes int64) string {
	if bytes < 1<<20 {
		return fmt.Sprintf("%d KiB", (bytes+1023)>>10)
	}
	return mebibytes(bytes)
}

func versions(by map[string]string) string {
	var all []string
	for name, version := range by {
		all = append(all, name+" "+version)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// report returns the same figures for programs.
func (o *convertOptions) report(r *convert.Result) *report.Report {
	made := report.New("model convert "+o.In+" "+o.Out, time.Now())
	made.Add("bytes", float64(r.Bytes), "B", "")
	made.Add("opset", float64(r.Opset), "", "")
	for _, d := range r.Differences {
		missing := ""
		if d.Missing {
			missing = ".missing"
		}
		made.Add(fmt.Sprintf("%s.b%d%s.difference", d.Output, d.Rows, missing), min(d.Largest, math.MaxFloat64), "", "")
	}
	made.Add("difference", min(r.Largest(), math.MaxFloat64), "", fmt.Sprintf("%g is tolerated", o.Tolerance))
	return made
}
