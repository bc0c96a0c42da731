package coldstart

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Options set what policies leave open. The zero value is sensible.
type Options struct {
	// KeepAlive is how long the fixed policy keeps an idle function; 0 means
	// DefaultKeepAlive.
	KeepAlive time.Duration
	// Gamma is LSTH's weight of the long-term histogram (γ, INFless §3.5), in
	// (0, 1]; 0 means DefaultGamma.
	Gamma float64
}

// makers is every policy by its name.
var makers = map[string]func(Options) Policy{
	"fixed":      func(o Options) Policy { return NewFixed(o.KeepAlive) },
	"hhp":        func(Options) Policy { return NewHHP() },
	"lsth":       func(o Options) Policy { return NewLSTH(o.Gamma) },
	"faas-infer": func(Options) Policy { return NewHazard() },
}

// Names lists the policies, sorted.
func Names() []string {
	names := make([]string, 0, len(makers))
	for name := range makers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// New makes the policy of that name. It is an error if there is none, or if an
// option has a value that cannot be.
func New(name string, o Options) (Policy, error) {
	maker, ok := makers[name]
	if !ok {
		return nil, fmt.Errorf("no cold-start policy is named %q; there are %s", name, strings.Join(Names(), ", "))
	}
	if o.KeepAlive < 0 {
		return nil, fmt.Errorf("the keep-alive time is %v; it must not be negative", o.KeepAlive)
	}
	if !(o.Gamma >= 0 && o.Gamma <= 1) { // NaN, too.
		return nil, fmt.Errorf("LSTH's γ is %v; it must be from 0 to 1", o.Gamma)
	}
	if o.KeepAlive == 0 {
		o.KeepAlive = DefaultKeepAlive
	}
	if o.Gamma == 0 {
		o.Gamma = DefaultGamma
	}
	return maker(o), nil
}
