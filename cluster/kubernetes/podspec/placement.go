package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// NodeSelector reads constraints, each "label=value" with a label of nodes. An instance
// runs only on nodes that satisfy all of them. An error names the constraint.
func NodeSelector(constraints []string) (map[string]string, error) {
	selector := map[string]string{}
	for _, c := range constraints {
		key, value, err := constraint(c)
		if err != nil {
			return nil, err
		}
		if before, twice := selector[key]; twice && before != value {
			return nil, &Error{Key: "constraints", Value: c, Why: "another constraint requires " + key + "=" + before + ", and no node can have both; keep one of them"}
		}
		selector[key] = value
	}
	return selector, nil
}

func constraint(c string) (key, value string, err error) {
	const form = `it must be label=value with a label of the nodes`
	wrong := func(why string) error {
		return &Error{Key: "constraints", Value: c, Why: why, Example: "disktype=ssd"}
	}
	key, value, found := strings.Cut(c, "=")
	if !found {
		return "", "", wrong(form)
	}
	key = strings.TrimSpace(key)
	value = strings.TrimSpace(strings.TrimPrefix(value, "="))
	if strings.HasSuffix(key, "!") {
		return "", "", wrong("it can only require a value; to exclude nodes, use the affinity of a profile (" + ProfileAnnotation + ")")
	}
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return "", "", wrong(form + "; the label " + problems[0])
	}
	if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
		return "", "", wrong(form + "; the value " + problems[0])
	}
	return key, value, nil
}

// Pin lets a pod run on one node only. It uses node affinity, so the scheduler and the
// kubelet still check whether the node has room. The pod's existing affinity still
// applies.
func Pin(spec *corev1.PodSpec, node string) {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	affinity := spec.Affinity
	if affinity.NodeAffinity == nil {
		affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
		affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = required
	}
	only := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}
	// Terms are alternatives, so each must require the node.
	for i := range required.NodeSelectorTerms {
		term := &required.NodeSelectorTerms[i]
		term.MatchFields = append(slices.Clip(term.MatchFields), only)
	}
}
