package podspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

const (
	// ReadyPath answers 200 once an instance serves.
	ReadyPath = "/_/ready"
	// StartedAnnotation is when the pod was asked for: a pod's own time of creation
	// has seconds only.
	StartedAnnotation = "faas-infer.dev/started-at"
	// ParkedCPU is what a parked instance keeps, in millicores: it has nothing to do
	// but to say that it is well.
	ParkedCPU = 50
)

// IsModel reports whether a pod says that it is a model's instance.
func IsModel(pod *corev1.Pod) bool {
	return pod.Labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedBy && pod.Labels[v1alpha1.InstanceLabel] != ""
}

// ReadModel returns the instance that a pod is of, as the pod's metadata and resources
// tell it; [Observe] says where it stands. A pod whose annotation is not what we
// wrote is an error.
func ReadModel(pod *corev1.Pod) (cluster.Instance, error) {
	in, err := recorded(pod)
	if err != nil {
		return in, fmt.Errorf("pod %s/%s: annotation %s: %w", pod.Namespace, pod.Name, v1alpha1.SpecAnnotation, err)
	}
	share(pod, &in.InstanceSpec)
	in.State, in.StartedAt = cluster.Starting, pod.CreationTimestamp.Time
	if at, err := time.Parse(time.RFC3339Nano, pod.Annotations[StartedAnnotation]); err == nil {
		in.StartedAt = at
	}
	if pod.Status.PodIP != "" {
		in.Network, in.Address = "tcp", net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(Port))
	}
	return in, nil
}

func recorded(pod *corev1.Pod) (in cluster.Instance, err error) {
	if err := json.Unmarshal([]byte(pod.Annotations[v1alpha1.SpecAnnotation]), &in.InstanceSpec); err != nil {
		return in, err
	}
	_, namespace, err := SplitName(in.Function)
	switch {
	case err != nil:
		return in, err
	case namespace != pod.Namespace:
		return in, fmt.Errorf("function is %q, which is of another namespace", in.Function)
	case string(in.ID) != pod.Name:
		return in, fmt.Errorf("id is %q, it must be the pod's name", in.ID)
	case len(pod.Spec.Containers) == 0:
		return in, errors.New("the pod has no container")
	}
	return in, sensible(in.Config, in.Kind)
}

// sensible says what of a spec cannot be: annotations can be edited by hand, and
// what an instance is said to hold is counted.
func sensible(c cluster.Config, kind cluster.Kind) error {
	switch {
	case kind != cluster.Model:
		return fmt.Errorf("kind is %q, and only models' instances are pods of their own", kind)
	case c.Batch < 1:
		return fmt.Errorf("config.batch is %d: it must be at least 1", c.Batch)
	case c.CPU < 0 || c.Memory < 0 || c.GPUMemory < 0:
		return fmt.Errorf("config is %+v: no amount can be below 0", c)
	case c.GPU < 0 || c.GPU > 100:
		return fmt.Errorf("config.gpu is %d: it must be a share of one GPU, 0 to 100", c.GPU)
	}
	return nil
}

// share has the spec follow the pod's resources and node, which are what the
// instance may use: a resize changes them and nothing else, so that there is no
// second place to be out of step.
func share(pod *corev1.Pod, spec *cluster.InstanceSpec) {
	requests := pod.Spec.Containers[0].Resources.Requests
	if memory := requests.Memory().Value(); memory > 0 {
		spec.Config.Memory = memory
	}
	if pod.Spec.NodeName != "" {
		spec.Node = pod.Spec.NodeName
	}
	cpu := int(requests.Cpu().MilliValue())
	switch {
	case cpu == 0 || cpu == spec.Config.CPU:
		spec.Parked = false
	case cpu == ParkedCPU:
		spec.Parked = true
	default:
		spec.Config.CPU, spec.Parked = cpu, false
	}
}
