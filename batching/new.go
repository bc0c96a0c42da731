package batching

import (
	"fmt"
	"slices"
	"strings"
)

// The names of the policies, as flags and annotations give them.
const (
	OneToOneName = "one-to-one"
	InFlessName  = "infless"
	SharedName   = "shared"
	BatchName    = "batch"
)

// Names lists the policies.
func Names() []string { return []string{OneToOneName, InFlessName, SharedName, BatchName} }

// CheckName returns an error that lists the known policies if name is none.
func CheckName(name string) error {
	if !slices.Contains(Names(), name) {
		return fmt.Errorf("unknown batching policy %q: it is one of %s", name, strings.Join(Names(), ", "))
	}
	return nil
}

// New returns the policy of that name.
func New(name string, o Options) (Policy, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	switch name {
	case OneToOneName:
		return NewOneToOne(o), nil
	case InFlessName:
		return NewInFless(o), nil
	case BatchName:
		return NewBuffer(o), nil
	default:
		return NewShared(o), nil
	}
}
