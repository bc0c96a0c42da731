package instances

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/postmortem"
)

// newPrepareCommand returns "faas-infer instance prepare".
func newPrepareCommand() *cobra.Command {
	var model, cache, library, name, request string
	var lean, asJSON bool
	var sizes profile.SizeFlags
	var trial profile.TryFlags
	var others []Preparer
	c := &cobra.Command{
		Use:   "prepare --model FILE --cache DIR",
		Short: "Prepare a model for this host, once, and print the directory for --prepared",
		Long: `prepare optimises a model for this host's CPU and writes it in the form that
instances map into memory. It does so once per model, CPU and engine version,
and checks that the outputs stay the same. For the bundle.yaml of a bundle that
Python or a model server runs, it installs the bundle's requirements into a virtual
environment in the user's cache, once, and keeps a copy of the bundle.`,
		Example: `  faas-infer instance prepare --model mnist.onnx --cache /var/lib/faas-infer/prepared`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if model == "" || cache == "" {
				return errors.New("--model or --cache is missing: give both")
			}
			for _, p := range others {
				takes, err := p.Takes(model)
				if err != nil {
					return err
				}
				if takes {
					return p.Prepare(c.Context(), c.OutOrStdout(), Preparation{Model: model, Cache: cache, Library: library, JSON: asJSON})
				}
			}
			if engines.IsManifest(model) {
				return prepareBeside(c.Context(), c.OutOrStdout(), model, cache, asJSON)
			}
			if err := sizes.CheckFile(model); err != nil {
				return err
			}
			if request != "" {
				return learn(model, cache, library, name, request, sizes.Largest, c.OutOrStdout())
			}
			usual, err := trial.Shapes(model, sizes.Usual)
			if err != nil {
				return err
			}
			if err := onnxruntime.Load(library); err != nil {
				return err
			}
			prepared, err := onnxruntime.Prepare(model, cache, onnxruntime.PrepareOptions{Lean: lean, Shapes: usual, MaxRun: trial.MaxRun})
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(struct {
					Dir string `json:"dir"`
					onnxruntime.Prepared
				}{prepared.Dir, prepared})
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), prepared.Dir)
			return err
		},
	}
	flags := c.Flags()
	flags.StringVar(&model, "model", "", "the ONNX file, or a bundle.yaml")
	flags.StringVar(&cache, "cache", "", "the directory for prepared models")
	flags.StringVar(&library, "onnxruntime", "", "the ONNX Runtime library (default $"+onnxruntime.LibraryEnv+")")
	for _, create := range preparers {
		p := create()
		p.Flags(flags)
		others = append(others, p)
	}
	sizes.Add(c.Flags())
	trial.Flags(c.Flags())
	flags.StringVar(&request, "request", "", "a file with a batch of one request: prepare the model with its sizes, and print these as JSON")
	flags.StringVar(&name, "name", "", "with --request, the name of the function that got it")
	flags.BoolVar(&lean, "lean", false, "take at most three times the model's size of memory: one session at a time")
	flags.BoolVar(&asJSON, "json", false, "print all measurements as JSON")
	return c
}

// freesMemory keeps glibc from raising the size above which a freed block goes back to the kernel, to that of the
// largest block freed so far: freed tensors would stay. Preparing a model of 37 MB took 200 to 320 MiB so, and the
// kernel killed it in some of the pods with 283 MiB, which then had no copy for an hour. It takes 115 MiB with it.
const freesMemory = "MALLOC_MMAP_THRESHOLD_=131072"

// PrepareApart returns a function that prepares the model in a file below a directory, in a process of its
// own, which gives its memory back. It returns the prepared directory.
func PrepareApart(library string, sizes profile.SizeFlags) func(ctx context.Context, file, cache string) (dir string, err error) {
	return func(ctx context.Context, file, cache string) (string, error) {
		var out, complaint bytes.Buffer
		c := exec.CommandContext(ctx, process.Self(), "instance", "prepare", "--model", file, "--cache", cache, "--lean", "--onnxruntime", library)
		c.Args = append(c.Args, sizes.Arguments()...)
		c.Env = append(os.Environ(), freesMemory)
		c.Stdout, c.Stderr = &out, &complaint
		child, err := process.Start(c, syscall.SIGKILL)
		if err == nil {
			err = child.Wait()
		}
		if err != nil {
			sentence, _ := postmortem.Explain(err, complaint.String())
			return "", errors.Join(ctx.Err(), errors.New(sentence))
		}
		return strings.TrimSpace(out.String()), nil
	}
}
