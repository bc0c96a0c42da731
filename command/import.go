package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/importing"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/python/convert"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// importFlags are the flags of "faas-infer import".
type importFlags struct {
	importing.Options
	files                  map[string]string
	slo                    time.Duration
	dryRun, force, install bool
	convert, trust         bool
	output                 report.Output
}

// newImportCommand returns "faas-infer import", which makes functions of other servers' models.
func newImportCommand() *cobra.Command {
	var f importFlags
	c := &cobra.Command{
		Use:   "import [SOURCE] PATH...",
		Short: "Make functions of models that KServe, Triton, TorchServe, MLServer, Seldon or BentoML serve",
		Long: `import reads models as other servers keep them and writes into --out what serves them here: a bundle for
each model and a stack.yml with all functions. It reports every field of the source: kept, changed with what
became of it, or not kept with the reason. It calls no cluster and no network. SOURCE is found out if it is
not given:

  kserve      YAML of InferenceServices, TrainedModels and ServingRuntimes; "-" reads standard input
  seldon      YAML of Models of Seldon Core 2; "-" reads standard input
  triton      a model repository, or a model's directory in one
  torchserve  a .mar file, or its directory
  mlserver    a directory with model-settings.json, or one of such directories
  bentoml     a model's directory in BentoML's store, or the store's directory models

A model is ready, unfinished with the steps that remain, or refused with the reason. The exit status is 1 if a
model was refused. Models of faas-netes stay in the cluster: see faas-infer-kubernetes import.`,
		Example: `  faas-infer import ./model-repository --dry-run
  faas-infer import torchserve densenet.mar --slo 200ms --out densenet
  kubectl get isvc -o yaml | faas-infer import - --files gs://models=/mnt/models
  faas-infer import ~/bentoml/models --slo 100ms --install && faas-infer deploy -f imported/stack.yml --wait`,
		Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return importing.Sources(), cobra.ShellCompDirectiveDefault
		},
		RunE: func(c *cobra.Command, args []string) error {
			return f.run(c.Context(), args, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.Out, "out", "imported",
		"directory to write: stack.yml, and a bundle in a directory of each function's name")
	flags.DurationVar(&f.slo, "slo", 0,
		"objective of every function, such as 200ms (default: a mark to replace in stack.yml)")
	flags.StringToStringVar(&f.files, "files", nil,
		"where the files at a URI of the source are on this machine: URI=DIR; also for longer URIs")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only report what would become of the models")
	flags.BoolVar(&f.force, "force", false, "replace in an existing --out what this import writes")
	flags.BoolVar(&f.convert, "convert", false, "also convert models of other formats to ONNX, as the steps in the report would")
	flags.BoolVar(&f.trust, "trust", false, "with --convert, run code in the files: pickled models")
	flags.BoolVar(&f.install, "install", false,
		"also put the bundles that are ready where \"faas-infer up\" finds them")
	f.output.Register(flags)
	return c
}

// run reads, writes and reports.
func (f *importFlags) run(ctx context.Context, args []string, out, progress io.Writer) error {
	if err := f.parse(args); err != nil {
		return usage(err)
	}
	im, err := importing.Read(f.Options)
	if err != nil {
		return err
	}
	defer im.Close()
	if !f.dryRun && im.Count(importing.Ready)+im.Count(importing.Unfinished) > 0 {
		if err := im.Write(ctx, f.force); err != nil {
			return err
		}
		if err := f.convertModels(ctx, im, progress); err != nil {
			return err
		}
		if err := f.installBundles(im); err != nil {
			return err
		}
	}
	if err := f.output.Print(out, im, func() *report.Table { return importTable(im) }); err != nil {
		return err
	}
	if !f.output.Raw() {
		if err := f.next(im, out); err != nil {
			return err
		}
	}
	if refused := im.Count(importing.Refused); refused > 0 {
		return fmt.Errorf("%d of %d models were refused; see their reasons above", refused, len(im.Models))
	}
	return nil
}

// parse checks flags and arguments.
func (f *importFlags) parse(args []string) error {
	if len(args) > 1 && slices.Contains(importing.Sources(), args[0]) {
		f.Source, args = args[0], args[1:]
	} else if len(args) > 0 && args[0] == "faas-netes" {
		return errors.New("functions of faas-netes are in the cluster; move them with `faas-infer-kubernetes import " +
			"--dry-run`")
	}
	switch {
	case f.slo != 0 && (f.slo < annotation.LeastSLO || f.slo > annotation.LongestSLO):
		return fmt.Errorf("--slo %v: it must be from %v to %v, for example 200ms", f.slo, annotation.LeastSLO,
			annotation.LongestSLO)
	case f.Out == "":
		return errors.New("--out is empty; give the directory to write, for example imported")
	case f.install && f.dryRun:
		return errors.New("--install has no effect with --dry-run; leave one of them out")
	case f.convert && f.dryRun:
		return errors.New("--convert has no effect with --dry-run; leave one of them out")
	case f.trust && !f.convert:
		return errors.New("--trust has no effect without --convert; add it")
	case slices.Contains(args, "-") && len(args) > 1:
		return errors.New("\"-\" must be the only path")
	}
	f.Paths, f.Files, f.SLO, f.Stdin = args, f.files, f.slo, os.Stdin
	return nil
}

// convertModels converts what has all that a conversion needs. A model that it cannot convert stays unfinished.
func (f *importFlags) convertModels(ctx context.Context, im *importing.Import, progress io.Writer) error {
	if !f.convert {
		return nil
	}
	if err := onnxruntime.Load(""); err != nil {
		return err
	}
	for _, m := range im.Models {
		c := im.Conversion(m)
		if c == nil || !c.Complete || c.Trust && !f.trust {
			continue
		}
		o := convert.Options{
			In: c.In, Out: c.Out, Trust: c.Trust, Below: 2, Seed: 1, Tolerance: 1e-4, Log: io.Discard,
			Step: report.Steps(progress),
		}
		for _, text := range c.Inputs {
			info, err := convert.ParseInput(text)
			if err != nil {
				return fmt.Errorf("convert the model of %s: %w", m.Function, err)
			}
			o.Inputs = append(o.Inputs, info)
		}
		_, err := convert.Run(ctx, o)
		switch {
		case ctx.Err() != nil:
			return err
		case err != nil:
			fmt.Fprintf(progress, "%s was not converted: %v\n", m.Function, err)
		default:
			m.Converted()
		}
	}
	return nil
}

// installBundles puts the bundles that are ready where "up" finds them.
func (f *importFlags) installBundles(im *importing.Import) error {
	if !f.install {
		return nil
	}
	dir, err := stateDir()
	if err != nil {
		return fmt.Errorf("--install: %w", err)
	}
	root := filepath.Join(dir, "bundles")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return fmt.Errorf("--install: %w", err)
	}
	for _, m := range im.Models {
		if m.State != importing.Ready || !m.Bundled() {
			continue
		}
		_, err := bundle.WriteDir(root, m.Function+":latest", filepath.Join(f.Out, m.Function), bundle.Manifest{})
		if err != nil {
			return fmt.Errorf("--install: %w", err)
		}
	}
	return nil
}

// importTable is the report: a row for each model, and one for each of its fields and steps.
func importTable(im *importing.Import) *report.Table {
	t := &report.Table{Columns: []report.Column{
		{
			Title: "MODEL",
		}, {Title: "FUNCTION"}, {Title: "FIELD"}, {Title: "VALUE"}, {Title: "RESULT"}, {Title: "WHAT", Long: true},
	}}
	for _, m := range im.Models {
		t.Add(m.Name, m.Function, "", "", m.State, m.Why)
		for _, n := range m.Notes {
			t.Add("", "", n.Field, n.Value, n.Fate, n.What)
		}
		for _, step := range m.Steps {
			t.Add("", "", "", "", "to do", step)
		}
	}
	return t
}

// next prints what was found and written, and the commands that follow.
func (f *importFlags) next(im *importing.Import, out io.Writer) error {
	var b strings.Builder
	ready, unfinished := im.Count(importing.Ready), im.Count(importing.Unfinished)
	fmt.Fprintf(&b, "\n%d ready, %d unfinished, %d refused", ready, unfinished, im.Count(importing.Refused))
	for kind, n := range im.Ignored {
		fmt.Fprintf(&b, "; %d %s ignored", n, kind)
	}
	b.WriteString(".\n")
	stack := filepath.Join(f.Out, importing.StackFile)
	switch {
	case ready+unfinished == 0:
	case f.dryRun:
		fmt.Fprintf(&b, "Nothing was written. Without --dry-run it would be %s.\n", stack)
	default:
		fmt.Fprintf(&b, "Wrote %s.", stack)
		if f.slo == 0 {
			fmt.Fprintf(&b, " Replace %s in it by each function's objective.", importing.Unset)
		}
		b.WriteString(" Then:\n")
		for _, m := range im.Models {
			if m.Function != "" && m.Bundled() && (!f.install || m.State != importing.Ready) {
				fmt.Fprintf(&b, "  faas-infer bundle %s --image %s:latest\n", filepath.Join(f.Out, m.Function),
					m.Function)
			}
		}
		fmt.Fprintf(&b, "  faas-infer deploy -f %s --wait\n", stack)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
