package podspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/gpu"
)

const (
	// ReadyPath answers 200 once an instance serves.
	ReadyPath = "/_/ready"
	// StartedAnnotation is when the backend was asked to start the instance. A pod's
	// own creation time has a resolution of seconds.
	StartedAnnotation = "faas-infer.dev/started-at"
	// StartingCPUAnnotation is the CPU in millicores that an instance's pod has until the instance is ready, if that
	// is more than its config's. The provider that gives the pod its config's CPU removes the annotation. Without it, the
	// next leader would take the larger CPU for the config's.
	StartingCPUAnnotation = "faas-infer.dev/starting-cpu"
	// ParkedCPU is the CPU of a parked instance in millicores. It only has to answer
	// health checks.
	ParkedCPU = 50
	// sharedParkedCPU is the CPU limit of a parked member that shares its CPU with others. No
	// running instance may use that little.
	sharedParkedCPU = 2 * ParkedCPU
)

// IsModel reports whether a pod's labels mark it as an instance of a model.
func IsModel(pod *corev1.Pod) bool {
	return pod.Labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedBy && pod.Labels[v1alpha1.InstanceLabel] != ""
}

// ReadModel returns a pod's instance as the pod's metadata and resources describe it;
// [Observe] returns its state. It returns an error if somebody has edited the pod's
// annotation to an impossible spec.
func ReadModel(pod *corev1.Pod) (cluster.Instance, error) {
	in, err := recorded(pod)
	if err != nil {
		return in, fmt.Errorf("pod %s/%s: annotation %s: %w", pod.Namespace, pod.Name, v1alpha1.SpecAnnotation, err)
	}
	share(pod, &in.InstanceSpec)
	shareOfGPU(pod, &in.InstanceSpec)
	in.State, in.StartedAt = cluster.Starting, pod.CreationTimestamp.Time
	if at, err := time.Parse(time.RFC3339Nano, pod.Annotations[StartedAnnotation]); err == nil {
		in.StartedAt = at
	}
	if in.Address = Address(pod); in.Address != "" {
		in.Network = Network(pod)
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
		return in, fmt.Errorf("function is %q, which is in another namespace", in.Function)
	case string(in.ID) != pod.Name:
		return in, fmt.Errorf("id is %q: it must be the pod's name", in.ID)
	case len(pod.Spec.Containers) == 0:
		return in, errors.New("the pod has no container")
	}
	return in, errors.Join(checkConfig(in.Config, in.Kind), checkMember(in.InstanceSpec), checkPair(in.InstanceSpec))
}

// maxMembers is the maximum number of members of a set, as in a plan.
const maxMembers = 256

// checkMember refuses an impossible place in a set.
func checkMember(s cluster.InstanceSpec) error {
	switch {
	case s.Config.Parts < 0 || s.Config.Parts > maxMembers:
		return fmt.Errorf("config.parts is %d: it must be from 0 to %d", s.Config.Parts, maxMembers)
	case s.Config.Active < 0 || s.Config.Most < 0:
		return fmt.Errorf("config.active is %d and config.most %d: neither may be below 0", s.Config.Active, s.Config.Most)
	case s.Config.Concurrency < 0:
		return fmt.Errorf("config.concurrency is %d: it must not be below 0", s.Config.Concurrency)
	case s.Set == "" && s.Member == 0:
		return nil
	case s.Member < 0 || s.Member >= s.Config.Parts:
		return fmt.Errorf("member is %d: it must be from 0 to %d", s.Member, s.Config.Parts-1)
	case (s.Member == 0) != (s.ID == s.Set):
		return fmt.Errorf("member is %d of set %q: only the master, member 0, has the set's name", s.Member, s.Set)
	}
	return nil
}

// checkConfig refuses an impossible config. Annotations can be edited by hand, and the
// planner relies on what an instance claims to hold.
func checkConfig(c cluster.Config, kind cluster.Kind) error {
	switch {
	case kind != cluster.Model:
		return fmt.Errorf("kind is %q: it must be empty, as only an instance of a model is a pod of its own", kind)
	case c.Batch < 1:
		return fmt.Errorf("config.batch is %d: it must be at least 1", c.Batch)
	case c.CPU < 0 || c.Memory < 0 || c.GPUMemory < 0:
		return fmt.Errorf("config is %+v: no amount may be below 0", c)
	case c.GPU < 0 || c.GPU > 100:
		return fmt.Errorf("config.gpu is %d: it must be a share of one GPU, 0 to 100", c.GPU)
	}
	return nil
}

// StartingCPU returns the CPU in millicores that a pod has been given until its instance is ready, 0 if it has been
// given its config's since.
func StartingCPU(pod *corev1.Pod) int {
	const core = 1000 // It is always less. People can edit annotations.
	n, err := strconv.Atoi(pod.Annotations[StartingCPUAnnotation])
	if err != nil || n <= 0 || n >= core {
		return 0
	}
	return n
}

// isStarting reports whether a pod has the CPU of [StartingCPU] and not yet, or not as far as its node reports,
// another.
func isStarting(pod *corev1.Pod) bool {
	n := int64(StartingCPU(pod))
	if n == 0 {
		return false
	}
	status := Status(pod)
	reported := status != nil && status.Resources != nil && status.Resources.Limits.Cpu().MilliValue() == n
	return reported || Container(pod).Resources.Requests.Cpu().MilliValue() == n
}

// share sets the spec's share and node from the pod, which says what the instance may
// use. A resize changes only the pod's resources, so the annotation cannot disagree.
func share(pod *corev1.Pod, spec *cluster.InstanceSpec) {
	has := Container(pod).Resources
	requests, limits := has.Requests, has.Limits
	if memory := requests.Memory().Value(); memory > 0 {
		spec.Config.Memory = memory
	}
	if pod.Spec.NodeName != "" {
		spec.Node = pod.Spec.NodeName
	}
	if isStarting(pod) {
		spec.Parked = false
		return
	}
	quota := Quota{int(requests.Cpu().MilliValue()), int(limits.Cpu().MilliValue())}
	shares := spec.Config.Together()
	switch {
	case quota.Request == 0, !shares && quota.Request == spec.Config.CPU:
		spec.Parked = false
	case shares && quota == Quota{ParkedCPU, sharedParkedCPU}, !shares && quota.Request == ParkedCPU:
		spec.Parked = true
	default:
		if spec.Config.CPU, spec.Parked = quota.Request, false; shares && quota.Limit > 0 {
			spec.Config.Most = quota.Limit
		}
	}
}

// shareOfGPU sets the spec's share of a GPU from the container's environment, which limits it and
// cannot be edited, unlike the pod's annotations.
func shareOfGPU(pod *corev1.Pod, spec *cluster.InstanceSpec) {
	if spec.Config.GPU == 0 && pod.Annotations[gpu.DeviceAnnotation] == "" {
		return
	}
	share := gpu.ReadShare(func(name string) string {
		for _, e := range Container(pod).Env {
			if e.Name == name {
				return e.Value
			}
		}
		return ""
	})
	named := spec.Device()
	if spec.Config.GPU, spec.Devices = share.Percent, nil; share.Device == "" {
		spec.Config.GPUMemory = 0
		return
	}
	if n, ok := Container(pod).Resources.Limits[gpu.WholeResource]; ok && !n.IsZero() { // The plugin has chosen which.
		if gpu.IsGranted(named) {
			spec.Devices = []string{named}
		}
		return
	}
	spec.Devices = []string{share.Device}
	if share.Memory > 0 { // The only user of a whole device has no limit.
		spec.Config.GPUMemory = share.Memory
	}
}
