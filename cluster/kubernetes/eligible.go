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

// answer caches the eligible nodes of all functions with the same constraints and
// profiles.
type answer struct {
	nodes []string
	why   string
	// generation is the fleet's when the answer was calculated; 0 forces a new
	// calculation.
	generation uint64
	// profiles are the functions' profiles, problem is why they cannot be used. read is
	// when they were read last; reading is true while they are being read.
	profiles []podspec.Profile
	problem  error
	read     time.Time
	reading  bool
}

const (
	// profilesHold is how long profiles count as current. They are read again after
	// that, because nothing watches them.
	profilesHold = 10 * time.Second
	// maxAnswers is the maximum number of cached answers.
	maxAnswers = 1000
)

// Eligible lists the nodes on which a function's instances may start by its
// constraints and profiles; nil means all nodes. If there are none, why says so to the
// user who deployed the function. Eligible never waits: it reads profiles in the
// background and returns no nodes until the first reading is done. platforms are those on which
// the function's image runs, as "linux/amd64"; none for linux on any architecture.
func (b *Backend) Eligible(d types.FunctionDeployment, platforms ...string) (names []string, why string) {
	named := podspec.ProfileNames(d)
	demand := strings.Join(d.Constraints, "\n") + "\n\n" + strings.Join(named, "\n") + "\n\n" + strings.Join(platforms, "\n")
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
		a.nodes, a.why = b.eligible(d, a, platforms)
		a.generation = b.fleet.generation
	}
	return a.nodes, a.why
}

// readProfiles reads the profiles that d names into a.
func (b *Backend) readProfiles(a *answer, d types.FunctionDeployment) {
	profiles, err := podspec.Named(b.options.Profiles, d)
	b.mu.Lock()
	defer b.mu.Unlock()
	a.profiles, a.problem, a.read, a.reading, a.generation = profiles, err, b.options.Now(), false, 0
}

// eligible calculates Eligible's answer. The lock is held.
func (b *Backend) eligible(d types.FunctionDeployment, a *answer, platforms []string) ([]string, string) {
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
	var ours []*nodes.Node
	foreign := 0
	for _, n := range b.fleet.all() {
		switch {
		case !b.selector.Matches(labels.Set(n.Labels)):
		case n.Runs(platforms):
			ours = append(ours, n)
		default:
			foreign++
		}
	}
	switch {
	case foreign == 0 && s.Any() && !b.fleet.tainted():
		return nil, ""
	case foreign > 0 && len(ours) == 0:
		return []string{}, nodes.NoPlatform(platforms)
	}
	return s.Eligible(ours, demanded(d.Constraints, a.profiles))
}

// tolerate notes that some function has these tolerations, so Nodes offers nodes with
// such taints, too. The lock is held.
func (f *fleet) tolerate(tolerations []corev1.Toleration) {
	text, err := json.Marshal(tolerations)
	if err != nil || f.tolerated[string(text)] != nil {
		return
	}
	f.tolerated[string(text)] = tolerations
	f.generation++
	f.offers = nil
}

// tainted reports whether Nodes may offer a node whose taints repel some functions. The
// lock is held.
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

// demanded names a function's demands on nodes for a message.
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
