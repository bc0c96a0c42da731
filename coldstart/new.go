package coldstart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Options configure the policies. The zero value means the defaults.
type Options struct {
	// KeepAlive is how long the fixed policy keeps an idle function; 0 means
	// DefaultKeepAlive.
	KeepAlive time.Duration
	// Gamma is LSTH's weight of the long-term histogram (γ, INFless §3.5), in
	// (0, 1]; 0 means DefaultGamma.
	Gamma float64
	// Price is the cost of a cold start to the policy faas-infer, in idle time of an
	// instance. With 0 the policy finds it for each function.
	Price time.Duration
	// Unparked lets idle instances keep their CPU and GPU share under the policy
	// faas-infer.
	Unparked bool
	// Start is how long before a request is due the policy faas-infer starts an
	// instance; 0 means DefaultStart.
	Start time.Duration
}

// DefaultStart is long enough to start most instances.
const DefaultStart = 5 * time.Second

// These are the first bytes of the policies' marshalled states.
const (
	wireHHP       = 'h'
	wireHHPWindow = 'w'
	wireLSTH      = 'l'
	wirePriced    = 'p'
)

// makers has every policy by its name.
var makers = map[string]func(Options) Policy{
	"fixed":      func(o Options) Policy { return NewFixed(o.KeepAlive) },
	"hhp":        func(Options) Policy { return newHHP() },
	"hhp-window": func(Options) Policy { return NewHHPWindow() },
	"lsth":       func(o Options) Policy { return NewLSTH(o.Gamma) },
	"faas-infer": func(o Options) Policy {
		p := newPriced(o.Price, o.Start)
		if o.Unparked {
			p.park = 0
		}
		return p
	},
}

// Names lists the policies, sorted.
func Names() []string {
	return slices.Sorted(maps.Keys(makers))
}

// New returns the policy of that name. It fails if there is none, or if an option's
// value is not allowed.
func New(name string, o Options) (Policy, error) {
	maker, ok := makers[name]
	if !ok {
		return nil, fmt.Errorf("unknown cold-start policy %q: it is one of %s", name, strings.Join(Names(), ", "))
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
