package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
)

// indexEnv is pip's variable for its package index.
const indexEnv = "PIP_INDEX_URL"

// setup says which library to fetch, and from where.
type setup struct {
	// file is the file to take it from, "" for the network.
	file string
	// index is the Python package index, "" for the default.
	index string
	// architecture is Go's name of the architecture.
	architecture string
}

// newSetupCommand returns "faas-infer setup".
func newSetupCommand() *cobra.Command {
	var s setup
	c := &cobra.Command{
		Use:   "setup",
		Short: "Fetch ONNX Runtime, which instances of models load",
		Long: `setup fetches the ONNX Runtime library (28 MB) from PyPI, checks its SHA-256, and keeps it in
the user's cache. It needs neither make nor Python, and does nothing if the library is there. On a machine
without a network, give it a file with --from: the wheel, the library, or a .tgz with the library in it.
"faas-infer doctor" checks the rest of the machine.

The library for GPUs is not among it: "make onnxruntime-cuda" in a checkout of faas-infer fetches that.`,
		Example: `  faas-infer setup
  faas-infer setup --from ` + onnxruntime.WheelName("amd64") + `
  faas-infer setup --architecture arm64`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return s.run(c.Context(), c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&s.file, "from", "",
		"`file` to take it from: the wheel of PyPI, libonnxruntime.so, or a .tgz with that")
	c.Flags().StringVar(&s.index, "index", "",
		"`URL` of a Python package index (default $"+indexEnv+", otherwise "+onnxruntime.DefaultIndex+")")
	c.Flags().StringVar(&s.architecture, "architecture", runtime.GOARCH,
		"architecture of the library: "+strings.Join(onnxruntime.Architectures(), " or ")+
			"; another than this machine's is for images")
	return c
}

func (s setup) run(ctx context.Context, out io.Writer) error {
	if own := os.Getenv(onnxruntime.LibraryEnv); own != "" && s.file == "" && s.architecture == runtime.GOARCH {
		if _, err := os.Stat(own); err != nil {
			return fmt.Errorf("%s: %w; set it to the path of libonnxruntime.so, or unset it", onnxruntime.LibraryEnv, err)
		}
		fmt.Fprintf(out, "ONNX Runtime is there: %s\n", own)
		return nil
	}
	path, err := onnxruntime.InstalledPath(s.architecture)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil && s.file == "" {
		fmt.Fprintf(out, "ONNX Runtime is there: %s\n", path)
		return nil
	}
	if s.file != "" {
		path, err = onnxruntime.Install(s.file, s.architecture)
	} else {
		path, err = s.fetch(ctx)
	}
	if err != nil {
		return fmt.Errorf("ONNX Runtime %s: %w", onnxruntime.LibraryVersion, err)
	}
	fmt.Fprintf(out, "ONNX Runtime %s: %s\n", onnxruntime.LibraryVersion, path)
	return nil
}

// fetch takes the library from the network.
func (s setup) fetch(ctx context.Context) (string, error) {
	from := cmp.Or(s.index, os.Getenv(indexEnv), onnxruntime.DefaultIndex)
	path, err := onnxruntime.Fetch(ctx, from, s.architecture, report.ProgressBar(os.Stderr, "ONNX Runtime"))
	if errors.Is(err, onnxruntime.ErrNoNetwork) {
		err = fmt.Errorf("%w; where there is a network, run: pip download --no-deps --python-version 311 --platform %s "+
			"--only-binary=:all: onnxruntime==%s, and give the wheel to faas-infer setup --from",
			err, onnxruntime.WheelPlatform(s.architecture), onnxruntime.LibraryVersion)
	}
	return path, err
}
