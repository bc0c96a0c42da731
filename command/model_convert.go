package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/python/convert"
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
		Short: "Make an ONNX model of a Keras, TensorFlow or PyTorch model, and compare both",
		Long: `convert makes an ONNX model, which this program serves best, of what the usual
frameworks write. The file endings decide the conversion:

  IN   .keras .h5        Keras, the whole model (model.save)
       DIR               TensorFlow, a SavedModel (model.export, tf.saved_model.save)
       .pt2              PyTorch, torch.export.save
       .pt .pth          PyTorch, torch.jit.save or, with --trust, a pickled module
  OUT  .onnx             an ONNX model
       DIR               a SavedModel, of a Keras model

The frameworks' own converters do it: tf2onnx, PyTorch's exporter, Keras'. They are
installed into a virtual environment of this program's in your cache, once (half a GB
is fetched for TensorFlow, 3 GB for PyTorch). Then both models are run on the same
random inputs, the new one as an instance would, and the largest difference is
printed: |new − old| / max(1, |old|). Above --tolerance nothing is written and the exit
status is 1. It is 1, too, if there are operators which ONNX does not have; they are
named.

The first dimension of each input is the batch and has to be open: ? here, None in
Keras, torch.export.Dim('batch') in PyTorch. Other open dimensions stay open unless
--input sets them, and are taken as 8 for the comparison.`,
		Example: `  faas-infer model convert mnist.keras mnist.onnx
  faas-infer model convert exported/1 model.onnx --signature serving_default
  faas-infer model convert resnet.pt2 resnet.onnx
  faas-infer model convert scripted.pt scripted.onnx --input 'x=float32[?,3,224,224]'
  faas-infer model convert words.keras words.onnx --integers-below 20000
  faas-infer model convert mnist.keras served/1`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.In, o.Out = args[0], args[1]
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringArrayVar(&o.inputs, "input", nil, "an input's name, type and shape, as x=float32[?,3,224,224]; for .pt of each input in order, else to set open sizes")
	f.StringVar(&o.Signature, "signature", "", "signature of a SavedModel (default serving_default, or the only one)")
	f.IntVar(&o.Opset, "opset", 0, "version of ONNX' operators (default what the converter does best: 17, for .pt2 18)")
	f.BoolVar(&o.Trust, "trust", false, "run code that is in the file: a pickled module of PyTorch, Lambda layers of Keras")
	f.BoolVar(&o.Replace, "force", false, "replace OUT if it is there")
	f.IntSliceVar(&o.Batches, "batches", []int{1, 3, 8}, "batch sizes to compare old and new with")
	f.IntVar(&o.Below, "integers-below", 2, "inputs of whole numbers are drawn from 0 to below this, for example the number of known words; others from -1 to 1")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the random inputs")
	f.Float64Var(&o.Tolerance, "tolerance", 1e-4, "largest difference with which OUT is written")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show the converters' whole output")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	return c
}

func (o *convertOptions) run(ctx context.Context, out, progress io.Writer) error {
	o.Log, o.Step = io.Discard, steps(progress)
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
	if o.json {
		return errors.Join(o.report(r).JSON(out), err)
	}
	return errors.Join(o.print(out, r, err == nil), err)
}

// steps shows what is being done, and since when.
func steps(w io.Writer) func(string) {
	began := time.Now()
	return func(step string) {
		fmt.Fprintf(w, "%6.1f s  %s\n", time.Since(began).Seconds(), step)
	}
}

// print tells people what came of it.
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
	fmt.Fprintf(out, "  inputs   %s\n  outputs  %s\n\nOld against new on random inputs:\n", tensors(r.Inputs), strings.Join(r.Outputs, ", "))
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "output\tbatch\tlargest difference\t")
	for _, d := range r.Differences {
		fmt.Fprintf(w, "%s\t%d\t%.2g\t\n", d.Output, d.Rows, d.Largest)
	}
	if err := w.Flush(); err != nil || !written {
		return err
	}
	_, err := fmt.Fprintf(out, "\nThe largest difference is %.2g, and %g is tolerated. Next: %s\n", r.Largest(), o.Tolerance, o.next(r))
	return err
}

// next is what to do with what was written.
func (o *convertOptions) next(r *convert.Result) string {
	if r.To == convert.ONNX {
		return fmt.Sprintf("faas-infer model check %s --slo 50ms", o.Out)
	}
	return fmt.Sprintf("name it in a bundle.yaml beside it (engine: tensorflow, model: %s), then faas-infer model check its directory", filepath.Base(o.Out))
}

// sizeOf is a file's size, in KiB if it is small.
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

// report is the same for programs.
func (o *convertOptions) report(r *convert.Result) *report.Report {
	made := report.New("model convert "+o.In+" "+o.Out, time.Now())
	made.Add("bytes", float64(r.Bytes), "B", "")
	made.Add("opset", float64(r.Opset), "", "")
	for _, d := range r.Differences {
		made.Add(fmt.Sprintf("%s.b%d.difference", d.Output, d.Rows), min(d.Largest, math.MaxFloat64), "", "")
	}
	made.Add("difference", min(r.Largest(), math.MaxFloat64), "", fmt.Sprintf("%g is tolerated", o.Tolerance))
	return made
}
