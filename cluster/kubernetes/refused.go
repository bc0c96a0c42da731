package kubernetes

import (
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
)

// judge takes in how an instance ends: whether its node has refused it, and whether that is the
// function's fault. A pod that was taken away before it was ready counts as refused, too: the
// next one waits a moment or goes elsewhere. The lock is held.
func (e *entry) judge(seen podspec.Observation) {
	if !seen.Refused && !seen.Disrupted || e.stopping {
		return
	}
	b := e.backend
	e.instance.Blameless = true
	if seen.Refused || e.instance.ReadyAt.IsZero() {
		b.refusals.Node(b.options.Now(), e.instance.Function, e.instance.Revision, e.instance.Node, e.steady(seen.Reason))
	}
}

// amounts matches what others use, in texts of quotas, kubelets and evictions: ", used: cpu=3".
var amounts = regexp.MustCompile(`(?i)(?:, (?:used|available):| was using) \S*[^\s,.]`)

// steady returns a refusal's reason without what differs at each try: the pod's name and what others
// use. The reason becomes the function's status, which is written at each change.
func (e *entry) steady(reason string) string {
	name := string(e.instance.ID)
	reason = strings.ReplaceAll(reason, `pods "`+name+`" is forbidden: `, "")
	return amounts.ReplaceAllString(strings.ReplaceAll(reason, name, "NAME"), "")
}

// judgeNow is judge without the lock.
func (e *entry) judgeNow(seen podspec.Observation) {
	e.backend.mu.Lock()
	defer e.backend.mu.Unlock()
	e.judge(seen)
}

// admitted takes in that an instance has become ready. The lock is held.
func (e *entry) admitted() { e.backend.refusals.Admitted(e.instance.Function, e.instance.Node) }

// notCreated returns the error of a pod that could not be created. It remembers a refusal by
// the API server, such as one because of a quota.
func (e *entry) notCreated(err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	b := e.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refusals.Namespace(b.options.Now(), e.instance.Function, e.instance.Revision, e.steady(err.Error()))
	return &cluster.RefusedError{Err: err}
}

// Admitting returns those of the nodes that Eligible lists for a function's revision that do
// not refuse its pods now. why says which do, or it is Eligible's. Beside nodes, why concerns
// the others.
func (b *Backend) Admitting(function string, revision uint64, eligible []string, reason string) (names []string, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.refusals.Has(function) || eligible != nil && len(eligible) == 0 {
		return eligible, reason
	}
	all := eligible
	if all == nil {
		all = make([]string, 0, len(b.fleet.nodes))
		for _, n := range b.fleet.all() {
			all = append(all, n.Name)
		}
	}
	if names, why = b.refusals.Admitting(b.options.Now(), function, revision, all); why == "" {
		return eligible, reason
	}
	return names, why
}
