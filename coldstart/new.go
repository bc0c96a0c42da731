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
	// Price is what a cold start is worth to faas-infer, in time that an
	// instance idles; 0 has it found for each function.
	Price time.Duration
	// Unparked has faas-infer leave idle instances their CPU and GPU share.
	Unparked bool
	// Start is how long before a request is due faas-infer starts an
	// instance; 0 means DefaultStart.
	Start time.Duration
}

// DefaultStart is enough to start most instances.
const DefaultStart = 5 * time.Second

// The first byte of what policies marshal.
const (
	wireHHP    = 'h'
	wireLSTH   = 'l'
	wirePriced = 'p'
)

// makers is every policy by its name.
var makers = map[string]func(Options) Policy{
	"fixed": func(o Options) Policy { return NewFixed(o.KeepAlive) },
	"hhp":   func(Options) Policy { return NewHHP() },
	"lsth":  func(o Options) Policy { return NewLSTH(o.Gamma) },
	"faas-infer": func(o Options) Policy {
		p := NewPriced(o.Price, o.Start)
		if o.Unparked {
			p.park = 0
		}
		return p
	},
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
	for _, d := range []struct {
		what string
		is   time.Duration
	}{{"keep-alive time", o.KeepAlive}, {"price of a cold start", o.Price}, {"time to start", o.Start}} {
		if d.is < 0 {
			return nil, fmt.Errorf("the %s is %v; it must not be negative", d.what, d.is)
		}
	}
	if !(o.Gamma >= 0 && o.Gamma <= 1) { // NaN, too.
		return nil, fmt.Errorf("LSTH's γ is %v; it must be from 0 to 1", o.Gamma)
	}
	if o.KeepAlive == 0 {
		o.KeepAlive = DefaultKeepAlive
	}
	if o.Start == 0 {
		o.Start = DefaultStart
	}
	if o.Gamma == 0 {
		o.Gamma = DefaultGamma
	}
	return maker(o), nil
}
