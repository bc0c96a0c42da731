package podspec

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/postmortem"
)

// Observation is the state of a pod's instance, as the pod's status shows it.
type Observation struct {
	// State is Ready if the kubelet's probe succeeds, and Exited if nothing runs any
	// more, although the pod's object may still exist.
	State cluster.State
	// ReadyAt is when it became Ready, to the second.
	ReadyAt time.Time
	// Reason says why it has exited, is stopping, or does not start.
	Reason string
	// Refused: its node does not take it, by the kubelet's or the scheduler's decision.
	// Disrupted: the cluster took it away. Neither is the function's fault.
	Refused, Disrupted bool
	// Stuck: it will not start unless something changes. Patience is how long that may
	// last before it is given up.
	Stuck    bool
	Patience time.Duration
	// Running: the function's container runs, so it can be probed.
	Running bool
}

const (
	// roomPatience is how long a pod may find no room on its node. A pod that is being
	// deleted may still hold the room.
	roomPatience = 3 * time.Second
	// retryPatience is how long the kubelet may retry failures that are often
	// temporary.
	retryPatience = 5 * time.Second
)

// hopeless maps reasons of waiting that another start does not fix to how long they may
// last. The kubelet's next try fixes the other reasons, or they only mean that it is
// busy.
var hopeless = map[string]time.Duration{
	"ErrImagePull":               0,
	"ImagePullBackOff":           0,
	"InvalidImageName":           0,
	"ErrImageNeverPull":          0,
	"ImageInspectError":          retryPatience,
	"RegistryUnavailable":        retryPatience,
	"SignatureValidationFailed":  0,
	"CreateContainerConfigError": retryPatience,
	"CreateContainerError":       retryPatience,
	"RunContainerError":          retryPatience,
	"CrashLoopBackOff":           0,
}

// Observe returns the state of a pod's instance.
func Observe(pod *corev1.Pod) Observation {
	switch status := &pod.Status; {
	case status.Phase == corev1.PodFailed || status.Phase == corev1.PodSucceeded:
		return Observation{State: cluster.Exited, Reason: exit(pod), Refused: rejected(pod), Disrupted: disrupted(pod)}
	case pod.DeletionTimestamp != nil:
		return Observation{State: cluster.Stopping, Reason: leaving(pod), Disrupted: disrupted(pod)}
	}
	if s := Status(pod); s != nil && s.State.Terminated != nil {
		// Sidecars may still run, and then the pod's phase is Running.
		return Observation{State: cluster.Exited, Reason: exit(pod), Disrupted: disrupted(pod)}
	}
	if ready := condition(pod, corev1.PodReady); ready != nil && ready.Status == corev1.ConditionTrue && pod.Status.PodIP != "" {
		return Observation{State: cluster.Ready, ReadyAt: ready.LastTransitionTime.Time, Running: true}
	}
	return starting(pod)
}

func starting(pod *corev1.Pod) Observation {
	s := Status(pod)
	o := Observation{State: cluster.Starting, Running: s != nil && s.State.Running != nil}
	if c := condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
		o.Stuck, o.Refused, o.Patience, o.Reason = true, true, roomPatience, join(c.Reason, c.Message)
		return o
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if w := list[i].State.Waiting; w != nil && w.Reason != "" {
				o.Reason = join(w.Reason, w.Message)
				if name := list[i].Name; name != ContainerName(pod) {
					o.Reason = "container " + name + ": " + o.Reason
				}
				o.Patience, o.Stuck = hopeless[w.Reason]
				if strings.Contains(w.Message, "QPS exceeded") {
					o.Patience = retryPatience // The kubelet limits its own rate; the image is not at fault.
				}
				return o
			}
		}
	}
	return o
}

// rejected reports whether the kubelet did not admit a pod: it has failed, and the kubelet, not
// a container, says why. Reasons are TopologyAffinityError, UnexpectedAdmissionError,
// NodeAffinity, OutOfcpu, Evicted under pressure, and others that plug-ins have.
func rejected(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodFailed || pod.Status.Reason == "" || disrupted(pod) {
		return false
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if list[i].State.Running != nil || list[i].State.Terminated != nil {
				return false
			}
		}
	}
	return true
}

// disrupted reports whether the cluster took a pod away: an eviction, a preemption, or a taint.
func disrupted(pod *corev1.Pod) bool {
	c := condition(pod, corev1.DisruptionTarget)
	return c != nil && c.Status == corev1.ConditionTrue
}

// exit says why a pod has ended, for people.
func exit(pod *corev1.Pod) string {
	if c := condition(pod, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue && pod.Status.Reason != "Evicted" {
		return disruption(c)
	}
	if pod.Status.Reason == "Evicted" {
		return join("evicted", pod.Status.Message)
	}
	if s := Status(pod); s != nil && s.State.Terminated != nil {
		return terminated(pod, s.State.Terminated)
	}
	if pod.Status.Reason != "" {
		return join(pod.Status.Reason, pod.Status.Message)
	}
	return join("the pod has "+strings.ToLower(string(pod.Status.Phase)), pod.Status.Message)
}

func terminated(pod *corev1.Pod, t *corev1.ContainerStateTerminated) string {
	const killed = 128
	switch line := postmortem.Cause(int(t.ExitCode), t.Message); {
	case t.Reason == "OOMKilled":
		if limit := Container(pod).Resources.Limits.Memory().Value(); limit > 0 {
			return fmt.Sprintf("out of memory (limit %d MiB)", limit>>20)
		}
		return "out of memory"
	case pod.DeletionTimestamp != nil && t.ExitCode == 0:
		return "stopped"
	case t.ExitCode > killed:
		return join(fmt.Sprintf("killed by signal %d", t.ExitCode-killed), line)
	case t.ExitCode == 0 && t.Reason != "" && t.Reason != "Completed":
		return join(t.Reason, line)
	default:
		return join(fmt.Sprintf("exit status %d", t.ExitCode), line)
	}
}

// leaving says why a pod is being deleted.
func leaving(pod *corev1.Pod) string {
	if c := condition(pod, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue {
		return disruption(c)
	}
	return "deleted"
}

func disruption(c *corev1.PodCondition) string {
	switch c.Reason {
	case "EvictionByEvictionAPI", corev1.PodReasonTerminationByKubelet:
		return join("evicted", c.Message)
	case corev1.PodReasonPreemptionByScheduler:
		return join("preempted", c.Message)
	case "DeletionByTaintManager", "DeletionByPodGC":
		return join("node lost", c.Message)
	}
	return join(c.Reason, c.Message)
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

func join(reason, message string) string {
	message = clip(strings.TrimSpace(message))
	if message == "" {
		return reason
	}
	return reason + ": " + message
}

// maxMessage is how many bytes of a message from Kubernetes are passed on.
const maxMessage = 400

func clip(text string) string {
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}
