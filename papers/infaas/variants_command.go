package infaas

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
)

// variantsOptions are the flags of "model variants".
type variantsOptions struct {
	out           string
	maxLoss       float64
	verbose, json bool
}

func newVariantsCommand() *cobra.Command {
	var o variantsOptions
	c := &cobra.Command{
		Use:   "variants DIR",
		Short: "Generate int8 variants of a bundle's models, measure and list all",
		Long: `variants makes int8 models of the ONNX models in a bundle, with ONNX Runtime's
quantizer: one with ranges of activations from calibration, one that calculates them in
each run. Operators that lose too much in 8 bits stay in float. variants then measures
all models as "faas-infer model evaluate" does: accuracy on the bundle's labelled data
(validation in bundle.yaml) or, without such data, the share of answers that are the
original model's; the time of a row, load time and memory. A model of texts is judged by
sample texts.

It drops a generated model that answers NaN, is not a tenth faster than its original,
loses more than --max-loss points, or that another variant beats in accuracy, time and cost.

The result is in DIR/variants: the generated models, variants.yaml, and variants.csv for
"faas-infer-lab simulate". The cost in it is 1, the price of one core. A second run
with the same models, data and machine only shows the result. All work is done with CPU
time that nobody else wants. The quantizer is installed once into your cache (60 MB).`,
		Example: `  faas-infer model variants ./photos
  faas-infer model variants ./photos --max-loss 2`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return o.run(c.Context(), args[0], c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVar(&o.out, "out", "", "directory of the result (default DIR/variants)")
	f.Float64Var(&o.maxLoss, "max-loss", 5, "maximum loss of accuracy, or of agreement, in points")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show the quantizer's full output")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	return c
}

func (o *variantsOptions) run(ctx context.Context, dir string, out, progress io.Writer) error {
	if !(o.maxLoss >= 0 && o.maxLoss <= 100) {
		return fmt.Errorf("--max-loss is %v: give a number of points, from 0 to 100", o.maxLoss)
	}
	b, err := bundle.OpenDir(dir)
	if err == nil {
		err = b.CheckModel()
	}
	if err != nil {
		return err
	}
	if b.Engine != bundle.EngineONNX || b.Whole() {
		return fmt.Errorf("the bundle %s has the engine %s%s: its model has one variant, itself; only ONNX models without a handler get others", dir, b.Engine, handlerOf(b))
	}
	if err := onnxruntime.Load(""); err != nil {
		return err
	}
	r := registering{bundle: b, out: o.out, maxLoss: o.maxLoss, step: report.Steps(progress), log: io.Discard}
	if r.out == "" {
		r.out = filepath.Join(dir, registration.Dir)
	}
	if o.verbose {
		r.log = progress
	}
	began := time.Now()
	registered, fresh, err := r.register(ctx)
	if err != nil {
		return err
	}
	took := time.Duration(0)
	if fresh {
		took = time.Since(began)
	}
	if o.json {
		return reportVariants(dir, registered, took).JSON(out)
	}
	return printRegistered(out, registered, r.out)
}

func handlerOf(b *bundle.Bundle) string {
	if b.Handler == "" {
		return ""
	}
	return " and the handler " + b.Handler
}

// reportVariants returns the figures for programs.
func reportVariants(dir string, registered *registration.Registration, took time.Duration) *report.Report {
	r := report.New("model variants "+dir, time.Now())
	share := func(name string, s *registration.Share) {
		if s != nil {
			r.Add(name, s.Value, "%", fmt.Sprintf("of %d rows", s.Rows))
			r.Add(name+"_low", s.Low, "%", "95 % interval")
			r.Add(name+"_high", s.High, "%", "95 % interval")
		}
	}
	for _, v := range registered.Variants {
		share(v.Name+".accuracy", v.Accuracy)
		share(v.Name+".agreement", v.Agreement)
		if v.Stated != nil {
			r.Add(v.Name+".stated", *v.Stated, "%", "accuracy as its author states it")
		}
		r.Add(v.Name+".latency_ms", v.LatencyMS, "ms", "")
		r.Add(v.Name+".rps", v.RPS, "1/s", "")
		r.Add(v.Name+".load_ms", v.LoadMS, "ms", "")
		r.Add(v.Name+".memory_mb", v.MemoryMB, "MB", "")
	}
	for _, d := range registered.Dropped {
		r.Add(d.Name+".dropped", 1, "", d.Reason)
	}
	note := ""
	if took == 0 {
		note = "there was nothing to do"
	}
	r.Add("register_s", took.Seconds(), "s", note)
	return r
}

// printRegistered prints the variants for people.
func printRegistered(out io.Writer, registered *registration.Registration, dir string) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "variant\tmodel\taccuracy\tms\trequests/s\tload ms\tMB")
	for _, v := range registered.Variants {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.3g\t%.4g\t%.3g\t%.0f\n", v.Name, v.Model, accuracyOf(&v), v.LatencyMS, v.RPS, v.LoadMS, v.MemoryMB)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, d := range registered.Dropped {
		fmt.Fprintf(out, "dropped %s: %s\n", d.Name, d.Reason)
	}
	_, err := fmt.Fprintf(out, "\nThe variants are in %s\n", dir)
	return err
}

// accuracyOf prints what is known of a variant's accuracy.
func accuracyOf(v *registration.Registered) string {
	switch {
	case v.Accuracy != nil:
		return fmt.Sprintf("%.1f %% (%.1f to %.1f)", v.Accuracy.Value, v.Accuracy.Low, v.Accuracy.High)
	case v.Stated != nil:
		return fmt.Sprintf("%.1f %%, stated", *v.Stated)
	case v.Agreement != nil:
		return fmt.Sprintf("unknown; agrees in %.1f %% (%.1f to %.1f)", v.Agreement.Value, v.Agreement.Low, v.Agreement.High)
	}
	return "unknown"
}
