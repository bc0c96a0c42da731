package podspec

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// ContainerName returns the name of the container that runs a pod's function: the function's
// name. A pod may have others, and webhooks that add sidecars may put them first. It returns
// the first container's name if none has the function's, "" if there is none.
func ContainerName(pod *corev1.Pod) string {
	name := pod.Labels[v1alpha1.FunctionLabel]
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return name
		}
	}
	if len(pod.Spec.Containers) > 0 {
		return pod.Spec.Containers[0].Name
	}
	return ""
}

// Container returns the container that runs a pod's function; nil if the pod has none.
func Container(pod *corev1.Pod) *corev1.Container {
	name := ContainerName(pod)
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == name {
			return c
		}
	}
	return nil
}

// Status returns the status of the container that runs a pod's function; nil if the kubelet
// has not reported any.
func Status(pod *corev1.Pod) *corev1.ContainerStatus {
	name := ContainerName(pod)
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == name {
			return s
		}
	}
	return nil
}
