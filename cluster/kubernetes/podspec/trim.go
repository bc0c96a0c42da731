package podspec

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/gpu"
)

// Trim returns a copy of a pod with only the fields that this package reads and those
// that count against its node. The cache of all of a cluster's pods then stays small. A
// pod that is not an instance keeps only the latter.
func Trim(pod *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion, DeletionTimestamp: pod.DeletionTimestamp},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, Overhead: pod.Spec.Overhead, Resources: pod.Spec.Resources,
			Containers: bare(pod.Spec.Containers), InitContainers: bare(pod.Spec.InitContainers),
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}
	if !IsModel(pod) {
		for _, s := range pod.Status.ContainerStatuses {
			if len(s.AllocatedResources) > 0 {
				out.Status.ContainerStatuses = append(out.Status.ContainerStatuses, corev1.ContainerStatus{Name: s.Name, AllocatedResources: s.AllocatedResources})
			}
		}
		return out
	}
	out.Labels = some(pod.Labels, v1alpha1.ManagedByLabel, v1alpha1.InstanceLabel, v1alpha1.FunctionLabel)
	if from, to := Container(pod), Container(out); from != nil {
		for _, e := range from.Env {
			if gpu.IsShare(e.Name) {
				to.Env = append(to.Env, e)
			}
		}
	}
	out.CreationTimestamp, out.Spec.ResourceClaims, out.Spec.Volumes = pod.CreationTimestamp, pod.Spec.ResourceClaims, Certificates(pod)
	out.Annotations = some(pod.Annotations, v1alpha1.SpecAnnotation, StartedAnnotation, StartingCPUAnnotation, gpu.DeviceAnnotation)
	out.Status.Reason, out.Status.Message, out.Status.PodIP = pod.Status.Reason, pod.Status.Message, pod.Status.PodIP
	if len(pod.Status.PodIPs) > 1 {
		out.Status.PodIPs = pod.Status.PodIPs
	}
	for _, c := range pod.Status.Conditions {
		c.LastProbeTime = metav1.Time{}
		out.Status.Conditions = append(out.Status.Conditions, c)
	}
	out.Status.ContainerStatuses, out.Status.InitContainerStatuses = states(pod.Status.ContainerStatuses), states(pod.Status.InitContainerStatuses)
	return out
}

// bare returns containers with only their names and resources.
func bare(containers []corev1.Container) (out []corev1.Container) {
	for _, c := range containers {
		out = append(out, corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
	}
	return out
}

func states(statuses []corev1.ContainerStatus) (out []corev1.ContainerStatus) {
	for _, s := range statuses {
		out = append(out, corev1.ContainerStatus{Name: s.Name, State: s.State, AllocatedResources: s.AllocatedResources, Resources: s.Resources})
	}
	return out
}

func some(all map[string]string, keys ...string) map[string]string {
	out := map[string]string{}
	for _, key := range keys {
		if value, ok := all[key]; ok {
			out[key] = value
		}
	}
	return out
}
