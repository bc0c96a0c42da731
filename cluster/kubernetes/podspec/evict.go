package podspec

import corev1 "k8s.io/api/core/v1"

// The annotations by which the cluster autoscaler decides whether a pod may be evicted for the removal
// of its node. Karpenter may evict every pod without an annotation of its own.
const (
	// SafeToEvict is "true" for a pod that may be evicted whatever owns it. By default the
	// autoscaler keeps the node of a pod that no ReplicaSet or StatefulSet starts again.
	SafeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	// SafeLocalVolumes lists the pod's volumes on the node that nothing is lost with. By default
	// the autoscaler keeps the node of a pod with such a volume.
	SafeLocalVolumes = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
)

// AllowEviction adds to a pod's annotations that its volumes on the node keep no node: /tmp, which an
// instance loses with every restart. A function's own annotations take precedence.
func AllowEviction(annotations map[string]string, spec *corev1.PodSpec) {
	if annotations[SafeToEvict] != "" || annotations[SafeLocalVolumes] != "" {
		return
	}
	for _, v := range spec.Volumes {
		if v.Name == tmpVolume && v.EmptyDir != nil {
			annotations[SafeLocalVolumes] = v.Name
		}
	}
}
