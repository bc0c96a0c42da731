package command

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
)

// indexEnv is pip's variable for its package index.
const indexEnv = "PIP_INDEX_URL"

// newSetupCommand returns "faas-infer setup".
func newSetupCommand() *cobra.Command {
	var file, index string
	c := &cobra.Command{
		Use:   "setup",
		Short: "Fetch ONNX Runtime, which instances of models load",
		Long: `setup fetches the ONNX Runtime library (28 MB) from PyPI, checks its SHA-256, and keeps it in
the user's cache. It needs neither make nor Python, and does nothing if the library is there. On a machine
without a network, give it the wheel or the library with --from. "faas-infer doctor" checks the rest of the machine.

The library for GPUs is not among it: see "make onnxruntime-cuda".`,
		Example: `  faas-infer setup
  faas-infer setup --from onnxruntime-` + onnxruntime.LibraryVersion + `-cp311-cp311-manylinux_2_28_x86_64.whl`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			path, err := onnxruntime.LibraryPath()
			if err != nil {
				return err
			}
			if os.Getenv(onnxruntime.LibraryEnv) != "" && file == "" {
				if _, err := os.Stat(path); err != nil {
					return fmt.Errorf("%s: %w; set it to the path of libonnxruntime.so, or unset it", onnxruntime.LibraryEnv, err)
				}
			}
			if _, err := os.Stat(path); err == nil && file == "" {
				fmt.Fprintf(c.OutOrStdout(), "ONNX Runtime is there: %s\n", path)
				return nil
			}
			if file != "" {
				path, err = onnxruntime.Install(file)
			} else {
				from := cmp.Or(index, os.Getenv(indexEnv), onnxruntime.DefaultIndex)
				path, err = onnxruntime.Fetch(c.Context(), from, report.ProgressBar(os.Stderr, "ONNX Runtime"))
				if errors.Is(err, onnxruntime.ErrNoNetwork) {
					err = fmt.Errorf("%w; where there is a network, run: pip download --no-deps --python-version 311 --platform manylinux_2_28_x86_64 --only-binary=:all: onnxruntime==%s, "+
						"and give the wheel to faas-infer setup --from", err, onnxruntime.LibraryVersion)
				}
			}
			if err != nil {
				return fmt.Errorf("ONNX Runtime %s: %w", onnxruntime.LibraryVersion, err)
			}
			fmt.Fprintf(c.OutOrStdout(), "ONNX Runtime %s: %s\n", onnxruntime.LibraryVersion, path)
			return nil
		},
	}
	c.Flags().StringVar(&file, "from", "", "`file` to take it from: the wheel of PyPI, or libonnxruntime.so")
	c.Flags().StringVar(&index, "index", "", "`URL` of a Python package index (default $"+indexEnv+", otherwise "+onnxruntime.DefaultIndex+")")
	return c
}
