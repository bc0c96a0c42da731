package nodes

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/klog/v2"
)

// Repels returns the first of the node's taints that none of the tolerations tolerates;
// "" if there is none.
func (n *Node) Repels(tolerations []corev1.Toleration) string {
	for i := range n.Taints {
		// The operators Lt and Gt may be enabled here: a cluster that does not know them
		// admits no pod with them.
		tolerates := func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Background(), &n.Taints[i], true) }
		if !slices.ContainsFunc(tolerations, tolerates) {
			return n.Taints[i].ToString()
		}
	}
	return ""
}

// Selector says which nodes a pod may run on: its node selector, its required node
// affinity and its tolerations.
type Selector struct {
	tolerations []corev1.Toleration
	labels      labels.Selector
	// terms are alternatives; nil if the pod requires none.
	terms []term
}

type term struct {
	labels labels.Selector
	names  labels.Selector
}

// NewSelector reads a pod's demands on nodes from its spec. An error names the key or
// operator that it cannot read.
func NewSelector(spec *corev1.PodSpec) (Selector, error) {
	s := Selector{tolerations: spec.Tolerations, labels: labels.SelectorFromSet(spec.NodeSelector)}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return s, nil
	}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return s, nil
	}
	s.terms = []term{}
	for i := range required.NodeSelectorTerms {
		t := &required.NodeSelectorTerms[i]
		if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
			continue // An empty term matches no node, as in the scheduler.
		}
		byLabel, err := selector(t.MatchExpressions)
		if err != nil {
			return s, fmt.Errorf("node affinity: %w", err)
		}
		byField, err := selector(t.MatchFields)
		if err != nil {
			return s, fmt.Errorf("node affinity: %w", err)
		}
		s.terms = append(s.terms, term{byLabel, byField})
	}
	return s, nil
}

var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
	corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
}

func selector(requirements []corev1.NodeSelectorRequirement) (labels.Selector, error) {
	s := labels.NewSelector()
	for _, r := range requirements {
		operator, ok := operators[r.Operator]
		if !ok {
			return nil, fmt.Errorf("operator %q of key %q is none of In, NotIn, Exists, DoesNotExist, Gt, Lt", r.Operator, r.Key)
		}
		requirement, err := labels.NewRequirement(r.Key, operator, r.Values)
		if err != nil {
			return nil, err
		}
		s = s.Add(*requirement)
	}
	return s, nil
}

// Selects reports whether the node's labels and name allow the pod on it.
func (s *Selector) Selects(n *Node) bool {
	if !s.labels.Matches(labels.Set(n.Labels)) {
		return false
	}
	return s.terms == nil || slices.ContainsFunc(s.terms, func(t term) bool {
		return t.labels.Matches(labels.Set(n.Labels)) && t.names.Matches(labels.Set{"metadata.name": n.Name})
	})
}

// Any reports whether the pod has no demands and no tolerations.
func (s *Selector) Any() bool {
	return s.labels.Empty() && s.terms == nil && len(s.tolerations) == 0
}

// Eligible lists the nodes on which a pod may start now. If there are none, why says so
// to the user who deployed the function; what names the user's demand.
func (s *Selector) Eligible(all []*Node, what string) (names []string, why string) {
	names = []string{}
	var selected, unready, repelled int
	taint := ""
	for _, n := range all {
		if !s.Selects(n) {
			continue
		}
		selected++
		if !n.Ready || n.Cordoned {
			unready++
		} else if t := n.Repels(s.tolerations); t != "" {
			repelled, taint = repelled+1, t
		} else {
			names = append(names, n.Name)
		}
	}
	switch {
	case len(names) > 0:
		return names, ""
	case len(all) == 0:
		return names, "the cluster has no nodes"
	case selected == 0:
		return names, fmt.Sprintf("%s fits none of the %s", what, count(len(all), "node"))
	}
	var parts []string
	if unready > 0 {
		parts = append(parts, fmt.Sprintf("%d not ready or cordoned", unready))
	}
	if repelled > 0 {
		parts = append(parts, fmt.Sprintf("%d with a taint that is not tolerated (%s)", repelled, taint))
	}
	return names, fmt.Sprintf("%s fits %s, of which none can be used: %s", what, count(selected, "node"), strings.Join(parts, ", "))
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
