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
	AsyFuncName  = "asyfunc"
	DeferredName = "deferred"
)

// Kind is what other packages must know of a policy.
type Kind struct {
	Name string
	// OwnQueues: each instance has its own queue, which a request joins on arrival.
	// The policy reads each instance's part of the load.
	OwnQueues bool
	// Single: every batch has one request.
	Single bool
	// Tuned: the tuner of the system of this name sets batch size and timeout (scaling/systems).
	// Only it keeps to a budget.
	Tuned bool
	// New makes a policy.
	New func(Options) Policy
}

// policies lists all policies in the order of [Names]. A new one is a row here; [Register] adds one from
// elsewhere.
var policies = []Kind{
	{Name: OneToOneName, Single: true, New: func(o Options) Policy { return newOneToOne(o) }},
	{Name: InFlessName, OwnQueues: true, New: func(o Options) Policy { return NewInFless(o) }},
	{Name: SharedName, New: func(o Options) Policy { return NewShared(o) }},
	{Name: AsyFuncName, New: func(o Options) Policy { return NewAsyFunc(o) }},
	{Name: DeferredName, New: func(o Options) Policy { return NewDeferred(o) }},
}

// Register adds a policy. Packages of papers call it when they are initialised. It panics if the name
// is taken.
func Register(k Kind) {
	if Of(k.Name).New != nil {
		panic("batching: " + k.Name + " is registered already")
	}
	policies = append(policies, k)
}

// Names lists the policies' names.
func Names() []string {
	names := make([]string, 0, len(policies))
	for _, k := range policies {
		names = append(names, k.Name)
	}
	return names
}

// Of returns the kind of that name, or the zero Kind if there is none.
func Of(name string) Kind {
	for _, k := range policies {
		if k.Name == name {
			return k
		}
	}
	return Kind{}
}

// CheckName returns an error that lists the known policies if name is not one of
// them.
func CheckName(name string) error {
	if Of(name).New == nil {
		return fmt.Errorf("unknown batching policy %q: it is one of %s", name, strings.Join(Names(), ", "))
	}
	return nil
}

// New returns the policy of that name.
func New(name string, o Options) (Policy, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	return Of(name).New(o), nil
}
