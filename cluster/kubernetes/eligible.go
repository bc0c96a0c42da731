package kubernetes

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/nodes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
)

// answer is what was said of the nodes of functions that demand the same.
type answer struct {
	nodes []string
	why   string
	// generation is that of the nodes it was said of; it is 0 when it has to be said
	// anew.
	generation uint64
	// profiles are those of the functions, problem why they cannot be used; they were
	// read at the time, and are being read.
	profiles []podspec.Profile
	problem  error
	read     time.Time
	reading  bool
}

const (
	// profilesHold is how long profiles are not read again: they change without our
	// being told.
	profilesHold = 10 * time.Second
	// maxAnswers is how many are kept.
	maxAnswers = 1000
)

// Eligible lists the nodes on which a function's instances may start by its
// constraints and profiles; nil for all. Where it may start on none, why says so, for
// whoever deployed it. It never waits: profiles are read in the background, and until
// they first were there are no nodes.
func (b *Backend) Eligible(d types.FunctionDeployment) (names []string, why string) {
	named := podspec.ProfileNames(d)
	demand := strings.Join(d.Constraints, "\n") + "\n\n" + strings.Join(named, "\n")
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.fleet.eligible[demand]
	if a == nil {
		if len(b.fleet.eligible) >= maxAnswers {
			clear(b.fleet.eligible)
		}
		a = &answer{}
		b.fleet.eligible[demand] = a
	}
	if len(named) > 0 && !a.reading && b.options.Now().Sub(a.read) >= profilesHold {
		a.reading = true
		b.begin(func() { b.readProfiles(a, d) })
	}
	if len(named) > 0 && a.read.IsZero() {
		return []string{}, "its profile has not been read yet"
	}
	if a.generation != b.fleet.generation {
		a.nodes, a.why = b.eligible(d, a)
		a.generation = b.fleet.generation
	}
	return a.nodes, a.why
}

// readProfiles reads what functions with a demand name.
func (b *Backend) readProfiles(a *answer, d types.FunctionDeployment) {
	profiles, err := podspec.Named(b.options.Profiles, d)
	b.mu.Lock()
	defer b.mu.Unlock()
	a.profiles, a.problem, a.read, a.reading, a.generation = profiles, err, b.options.Now(), false, 0
}

// eligible is called with the lock held.
func (b *Backend) eligible(d types.FunctionDeployment, a *answer) ([]string, string) {
	if a.problem != nil {
		return []string{}, a.problem.Error()
	}
	var spec corev1.PodSpec
	err := podspec.Apply(&spec, types.FunctionDeployment{Service: d.Service, Constraints: d.Constraints}, podspec.Settings{Profiles: a.profiles})
	var s nodes.Selector
	if err == nil {
		s, err = nodes.NewSelector(&spec)
	}
	if err != nil {
		return []string{}, err.Error()
	}
	if len(spec.Tolerations) > 0 {
		b.fleet.tolerate(spec.Tolerations)
	}
	if s.Any() && !b.fleet.tainted() {
		return nil, ""
	}
	var ours []*nodes.Node
	for _, n := range b.fleet.all() {
		if b.selector.Matches(labels.Set(n.Labels)) {
			ours = append(ours, n)
		}
	}
	return s.Eligible(ours, demanded(d.Constraints, a.profiles))
}

// tolerate notes that there are instances which may be on tainted nodes, so that
// these are offered. The lock is held.
func (f *fleet) tolerate(tolerations []corev1.Toleration) {
	text, err := json.Marshal(tolerations)
	if err != nil || f.tolerated[string(text)] != nil {
		return
	}
	f.tolerated[string(text)] = tolerations
	f.generation++
	f.offers = nil
}

// tainted reports whether there are nodes on offer that not every instance may be on.
// The lock is held.
func (f *fleet) tainted() bool {
	if len(f.tolerated) == 0 {
		return false
	}
	for _, n := range f.all() {
		if n.Repels(nil) != "" {
			return true
		}
	}
	return false
}

// demanded names what a function asks of nodes.
func demanded(constraints []string, profiles []podspec.Profile) string {
	switch {
	case len(constraints) > 0:
		text := "the constraint " + strings.Join(constraints, ", ")
		if len(constraints) > 1 {
			text = "the constraints " + strings.Join(constraints, ", ") + " together"
		}
		if len(profiles) > 0 {
			text += " with its profile"
		}
		return text
	case len(profiles) > 0:
		return "its profile"
	}
	return "the function"
}
