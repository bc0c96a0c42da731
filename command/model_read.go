package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// newModelReadCommand returns the child process that reads a deployment's model.
func newModelReadCommand() *cobra.Command {
	var sizes profile.SizeFlags
	var trial profile.TryFlags
	c := &cobra.Command{
		Use:    "read FILE",
		Short:  "Check that a model can be read and has a graph, or that a bundle is complete",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if engines.IsManifest(args[0]) {
				return engines.Of(args[0]).Check(c.Context(), args[0])
			}
			if sizes.Usual, err = trial.Shapes(args[0], sizes.Usual); err != nil {
				return err
			}
			m, err := readModel(args[0])
			if err != nil {
				return err
			}
			if m, err = sizes.Size(m); err != nil {
				return err
			}
			if _, err := m.Graph(1); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return nil
		},
	}
	sizes.Add(c.Flags())
	trial.Flags(c.Flags())
	return c
}

// largeFile is the size in bytes from which the weights of a model are not read with it.
const largeFile = 64 << 20

func readModel(path string) (*model.Model, error) {
	read := model.ReadFile
	if info, err := os.Stat(path); err == nil && info.Size() >= largeFile {
		read = model.ReadOutline
	}
	m, err := read(path)
	if _, known := zoo.Find(path); err != nil && known && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s; make the model of that name with `faas-infer model make %s`", path, path)
	}
	return m, err
}
