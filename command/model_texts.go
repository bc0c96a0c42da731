package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/textmodel"
)

// newModelTextsCommand returns the process that checks whether a bundle's model and tokenizer fit.
func newModelTextsCommand() *cobra.Command {
	var length int
	c := &cobra.Command{
		Use:    "texts DIR FILE",
		Short:  "Check that a bundle's model takes texts as its bundle.yaml and its tokenizer say",
		Hidden: true,
		Args:   cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := bundle.OpenDir(args[0])
			if err != nil {
				return err
			}
			if b.Text == nil {
				return fmt.Errorf("%s says nothing of texts", bundle.ManifestFile)
			}
			return textmodel.Check(b.Dir, b.Text, args[1], length)
		},
	}
	c.Flags().IntVar(&length, "tokens", 0, "maximum number of tokens that a deployment states (0: the bundle's)")
	return c
}
