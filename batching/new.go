package batching

import (
	"fmt"
	"strings"
)

// The names of the policies, as flags and annotations give them.
const (
	OneToOneName = "one-to-one"
	InFlessName  = "infless"
	SharedName   = "shared"
	BatchName    = "batch"
)

// Kind is what others must know of a policy that was named.
type Kind struct {
	Name string
	// OwnQueues: each instance has a queue of its own that a request joins when it
	// comes, and is told of its part of the load.
	OwnQueues bool
	// Single: no batch is of more than one request.
	Single bool
	// Tuned: batch size and timeout are set from outside, by BATCH's optimiser, which
	// alone keeps to a budget.
	Tuned bool

	make func(Options) Policy
}

// policies are all, in the order in which they are listed. A new one is a row here.
var policies = []Kind{
	{Name: OneToOneName, Single: true, make: func(o Options) Policy { return NewOneToOne(o) }},
	{Name: InFlessName, OwnQueues: true, make: func(o Options) Policy { return NewInFless(o) }},
	{Name: SharedName, make: func(o Options) Policy { return NewShared(o) }},
	{Name: BatchName, Tuned: true, make: func(o Options) Policy { return NewBuffer(o) }},
}

// Names lists the policies.
func Names() []string {
	names := make([]string, 0, len(policies))
	for _, k := range policies {
		names = append(names, k.Name)
	}
	return names
}

// Of is the kind of that name, the zero one if there is none.
func Of(name string) Kind {
	for _, k := range policies {
		if k.Name == name {
			return k
		}
	}
	return Kind{}
}

// CheckName returns an error that lists the known policies if name is none.
func CheckName(name string) error {
	if Of(name).make == nil {
		return fmt.Errorf("unknown batching policy %q: it is one of %s", name, strings.Join(Names(), ", "))
	}
	return nil
}

// New returns the policy of that name.
func New(name string, o Options) (Policy, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	return Of(name).make(o), nil
}
