package command

import (
	"fmt"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/spf13/pflag"
)

// sizeFlags are the flags of the sizes of a model's free dimensions: the usual ones, and the
// largest that a request may have.
type sizeFlags struct{ usual, largest tensor.Shapes }

func (s *sizeFlags) add(flags *pflag.FlagSet) {
	profile.ShapesFlag(flags, &s.usual)
	profile.MaxShapesFlag(flags, &s.largest)
}

// arguments are the flags that give another process the same sizes.
func (s sizeFlags) arguments() (flags []string) {
	if s.usual != nil {
		flags = append(flags, "--shapes", s.usual.String())
	}
	if s.largest != nil {
		flags = append(flags, "--max-shapes", s.largest.String())
	}
	return flags
}

// check returns an error that begins with the flag which contradicts a model.
func (s sizeFlags) check(m *model.Model) error {
	if err := m.CheckShapes(s.usual); err != nil {
		return fmt.Errorf("--shapes: %w", err)
	}
	if err := m.CheckShapes(s.largest); err != nil {
		return fmt.Errorf("--max-shapes: %w", err)
	}
	return nil
}

// checkFile is check of the model in a file, which it only reads if there are sizes.
func (s sizeFlags) checkFile(file string) error {
	if s.usual == nil && s.largest == nil {
		return nil
	}
	m, err := model.ReadOutline(file)
	if err != nil {
		return err
	}
	return s.check(m)
}

// size returns a model with the usual sizes; without any it is the model itself.
func (s sizeFlags) size(m *model.Model) (*model.Model, error) {
	if err := s.check(m); err != nil || s.usual == nil {
		return m, err
	}
	sized, _, err := m.Sized(s.usual)
	return sized, err
}
