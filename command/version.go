package command

import (
	"runtime"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
)

// ownVersions are the versions of this program and of what it runs with.
type ownVersions struct {
	// Release is "" in a build that is no release.
	Release     string `json:"release,omitempty"`
	Commit      string `json:"commit"`
	Go          string `json:"go"`
	Platform    string `json:"platform"`
	ONNXRuntime string `json:"onnxRuntime"`
	CUDA        string `json:"onnxRuntimeForGPUs"`
}

// newVersionCommand returns "faas-infer version".
func newVersionCommand() *cobra.Command {
	var out report.Output
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program, and those of ONNX Runtime that it is tested with",
		Example: "  faas-infer version\n  faas-infer version -o json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := ownVersions{
				Release:     report.Release,
				Commit:      report.Version(),
				Go:          runtime.Version(),
				Platform:    runtime.GOOS + "/" + runtime.GOARCH,
				ONNXRuntime: onnxruntime.LibraryVersion,
				CUDA:        onnxruntime.CUDAVersion,
			}
			return out.Print(c.OutOrStdout(), v, func() *report.Table {
				t := &report.Table{Columns: []report.Column{{Title: "PART"}, {Title: "VERSION"}}}
				if v.Release != "" {
					t.Add("faas-infer", v.Release)
				}
				t.Add("Commit", v.Commit)
				t.Add("Go", v.Go+" "+v.Platform)
				t.Add("ONNX Runtime", v.ONNXRuntime)
				t.Add("ONNX Runtime for GPUs", v.CUDA)
				return t
			})
		},
	}
	out.Register(c.Flags())
	return c
}
