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
	nodes      []string
	why        string
	generation uint64
	at         time.Time
}

const (
	// answerHolds is how long an answer holds while the nodes stay as they are:
	// profiles change without our being told.
	answerHolds = 2 * time.Second
	// mostAnswers is how many are kept.
	mostAnswers = 1000
)

// Eligible lists the nodes on which a function's instances may start by its
// constraints and profiles; nil for all. Where it may start on none, why says so, for
// whoever deployed it. It answers at once.
func (b *Backend) Eligible(d types.FunctionDeployment) (names []string, why string) {
	demand := strings.Join(d.Constraints, "\n") + "\n\n" + strings.Join(podspec.ProfileNames(d), "\n")
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.options.Now()
	a, ok := b.fleet.eligible[demand]
	if !ok || a.generation != b.fleet.generation || now.Sub(a.at) >= answerHolds {
		a = answer{}
		a.nodes, a.why = b.eligible(d)
		a.generation, a.at = b.fleet.generation, now
		if len(b.fleet.eligible) >= mostAnswers {
			clear(b.fleet.eligible)
		}
		b.fleet.eligible[demand] = a
	}
	return a.nodes, a.why
}

// eligible is called with the lock held.
func (b *Backend) eligible(d types.FunctionDeployment) ([]string, string) {
	profiles, err := podspec.Named(b.options.Profiles, d)
	var spec corev1.PodSpec
	if err == nil {
		d = types.FunctionDeployment{Service: d.Service, Constraints: d.Constraints}
		err = podspec.Apply(&spec, d, podspec.Settings{Profiles: profiles})
	}
	var s nodes.Selector
	if err == nil {
		s, err = nodes.NewSelector(&spec)
	}
	if err != nil {
		return []string{}, err.Error()
	}
	if len(spec.Tolerations) > 0 {
		b.tolerate(spec.Tolerations)
	}
	if s.Any() && !b.tainted() {
		return nil, ""
	}
	var ours []*nodes.Node
	for _, n := range b.fleet.all() {
		if b.selector.Matches(labels.Set(n.Labels)) {
			ours = append(ours, n)
		}
	}
	return s.Eligible(ours, demanded(d.Constraints, profiles))
}

// tolerate notes that there are instances which may be on tainted nodes, so that
// these are offered. The lock is held.
func (b *Backend) tolerate(tolerations []corev1.Toleration) {
	text, err := json.Marshal(tolerations)
	if err != nil || b.fleet.tolerated[string(text)] != nil {
		return
	}
	b.fleet.tolerated[string(text)] = tolerations
	b.fleet.generation++
	b.fleet.offers = nil
}

// tainted reports whether there are nodes on offer that not every instance may be on.
// The lock is held.
func (b *Backend) tainted() bool {
	if len(b.fleet.tolerated) == 0 {
		return false
	}
	for _, n := range b.fleet.all() {
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
