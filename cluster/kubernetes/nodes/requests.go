package nodes

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster"
)

// Requests returns what a pod takes of its node, as the scheduler counts it: the sum of
// its containers' requests, or the temporary demand of its init containers if that is
// more. During a resize, the larger of the old and the new request counts.
func Requests(pod *corev1.Pod) cluster.Resources {
	has := allocated(pod.Status.ContainerStatuses)
	var sum cluster.Resources
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		sum = sum.Add(largest(amount(c.Resources.Requests), has[c.Name]))
	}
	sum = starting(pod, sum)
	if pod.Spec.Resources != nil {
		if whole := amount(pod.Spec.Resources.Requests); whole != (cluster.Resources{}) {
			sum = largest(sum, whole)
		}
	}
	return sum.Add(amount(pod.Spec.Overhead))
}

// Beside returns what a pod takes of its node in addition to one of its containers: the requests of
// sidecars that webhooks added, the overhead of its RuntimeClass, and what init containers
// need beyond that container. own is the container's name.
func Beside(pod *corev1.Pod, own string) cluster.Resources {
	has := allocated(pod.Status.ContainerStatuses)
	var of cluster.Resources
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == own {
			of = largest(amount(c.Resources.Requests), has[own])
		}
	}
	return largest(Requests(pod).Sub(of), cluster.Resources{})
}

// starting adds the init containers to the running ones. Init containers that restart
// are sidecars and run with the others; the others run one at a time before them.
func starting(pod *corev1.Pod, running cluster.Resources) cluster.Resources {
	var beside, peak cluster.Resources
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		need := amount(c.Resources.Requests)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			beside = beside.Add(need)
			need = cluster.Resources{}
		}
		peak = largest(peak, need.Add(beside))
	}
	return largest(peak, running.Add(beside))
}

func allocated(statuses []corev1.ContainerStatus) map[string]cluster.Resources {
	var has map[string]cluster.Resources
	for i := range statuses {
		if len(statuses[i].AllocatedResources) == 0 {
			continue
		}
		if has == nil {
			has = map[string]cluster.Resources{}
		}
		has[statuses[i].Name] = amount(statuses[i].AllocatedResources)
	}
	return has
}

func largest(a, b cluster.Resources) cluster.Resources {
	return cluster.Resources{CPU: max(a.CPU, b.CPU), Memory: max(a.Memory, b.Memory)}
}
