package command

import (
	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// newModelAlikeCommand returns the process that compares the models of a bundle.
func newModelAlikeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "alike DIR",
		Short:  "Check that the models of a bundle answer the same requests",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := bundle.OpenDir(args[0])
			if err != nil {
				return err
			}
			return b.CheckAlike()
		},
	}
}
