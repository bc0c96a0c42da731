package podspec

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// BodyVariable makes an instance that finds a copy of its model on the node take shadows. It is
// the environment variable of the instance's program.
const BodyVariable = "FAAS_INFER_BODY"

// addPair adds what the pod of a body or of a shadow has and other pods do not: the labels by
// which a network policy lets the one reach the other, a body's variable and a shadow's port.
func addPair(pod *corev1.Pod, spec cluster.InstanceSpec) {
	c := &pod.Spec.Containers[0]
	switch {
	case spec.Role == cluster.Shadow:
		pod.Labels[v1alpha1.PairLabel], pod.Labels[v1alpha1.BodyLabel] = v1alpha1.PairShadow, string(spec.Body)
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: relayName, ContainerPort: RelayPort, Protocol: corev1.ProtocolTCP})
	case spec.Paired:
		pod.Labels[v1alpha1.PairLabel] = v1alpha1.PairBody
		c.Env = append(c.Env, corev1.EnvVar{Name: BodyVariable, Value: "1"}) // The deployment's own value does not replace it.
	}
}

// Paired returns a merge patch for the pod of a shadow that is given to another body. The next provider,
// and the replicas that follow, read the body from the pod.
func Paired(spec cluster.InstanceSpec) ([]byte, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("instance's spec: %w", err)
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"labels": map[string]string{v1alpha1.BodyLabel: string(spec.Body)}, "annotations": map[string]string{v1alpha1.SpecAnnotation: string(text)},
	}})
}

// checkPair refuses an impossible place in a pair.
func checkPair(s cluster.InstanceSpec) error {
	switch {
	case s.Role != cluster.Body && s.Role != cluster.Shadow && s.Role != cluster.Trial:
		return fmt.Errorf("role is %q: it must be empty, %q or %q", s.Role, cluster.Shadow, cluster.Trial)
	case s.Role == cluster.Shadow && (s.Part == "" || s.Body == ""):
		return fmt.Errorf("part is %q and body %q: a shadow has both", s.Part, s.Body)
	case s.Role == cluster.Shadow && (s.Set != "" || s.Paired):
		return fmt.Errorf("set is %q and paired %v: a shadow is in no set and has no shadows", s.Set, s.Paired)
	case s.Role != cluster.Shadow && (s.Part != "" || s.Body != ""):
		return fmt.Errorf("part is %q and body %q: only a shadow has them", s.Part, s.Body)
	}
	return nil
}
