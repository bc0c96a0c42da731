package profile

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// SizeFlags are the flags of the sizes of a model's free dimensions: the usual ones, and the
// largest that a request may have.
type SizeFlags struct{ Usual, Largest tensor.Shapes }

// Add defines the flags.
func (s *SizeFlags) Add(flags *pflag.FlagSet) {
	ShapesFlag(flags, &s.Usual)
	MaxShapesFlag(flags, &s.Largest)
}

// Arguments are the flags that give another process the same sizes.
func (s SizeFlags) Arguments() (flags []string) {
	if s.Usual != nil {
		flags = append(flags, "--shapes", s.Usual.String())
	}
	if s.Largest != nil {
		flags = append(flags, "--max-shapes", s.Largest.String())
	}
	return flags
}

// check returns an error that begins with the flag which contradicts a model.
func (s SizeFlags) check(m *model.Model) error {
	if err := m.CheckShapes(s.Usual); err != nil {
		return fmt.Errorf("--shapes: %w", err)
	}
	if err := m.CheckShapes(s.Largest); err != nil {
		return fmt.Errorf("--max-shapes: %w", err)
	}
	return nil
}

// CheckFile returns an error that begins with the flag which contradicts the model in a file. It reads
// the file only if there are sizes.
func (s SizeFlags) CheckFile(file string) error {
	if s.Usual == nil && s.Largest == nil {
		return nil
	}
	m, err := model.ReadOutline(file)
	if err != nil {
		return err
	}
	return s.check(m)
}

// Size returns a model with the usual sizes; without any it is the model itself. An error begins with the
// flag which contradicts the model.
func (s SizeFlags) Size(m *model.Model) (*model.Model, error) {
	if err := s.check(m); err != nil || s.Usual == nil {
		return m, err
	}
	sized, _, err := m.Sized(s.Usual)
	return sized, err
}
