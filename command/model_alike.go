package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/model"
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
			return sameRequests(b)
		},
	}
}

// sameRequests reads the signatures of a bundle's models. It returns an error unless all answer the
// same requests.
func sameRequests(b *bundle.Bundle) error {
	models := b.Registered()
	var signatures []bundle.Signature
	for _, m := range models {
		file, err := b.File(m.Model)
		if err != nil {
			return err
		}
		read, err := model.ReadFile(file)
		if err != nil {
			return fmt.Errorf("model %s: %w", m.Name, err)
		}
		if _, err := read.Graph(1); err != nil {
			return fmt.Errorf("model %s: %w", m.Name, err)
		}
		signatures = append(signatures, bundle.Signature{Inputs: read.Inputs(), Outputs: read.Outputs()})
	}
	if err := bundle.Alike(models, signatures); err != nil {
		return fmt.Errorf("%s: %w", bundle.ManifestFile, err)
	}
	return nil
}
