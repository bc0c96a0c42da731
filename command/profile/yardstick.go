package profile

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/profiler/measuring"
)

// newYardstickCommand returns "profile yardstick", by which the provider compares its machine to
// that of a profile. It is a process of its own because the provider does not load the engine.
func newYardstickCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "yardstick",
		Short:  "Print how many µs a 128×128 matrix product takes on this machine",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := onnxruntime.Load(""); err != nil {
				return err
			}
			took, err := measuring.ReadYardstick()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), took)
			return err
		},
	}
}
