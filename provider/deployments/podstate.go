package deployments

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
)

// Pod is one instance of an ordinary function.
type Pod struct {
	ID cluster.InstanceID
	// Function is the function's full name. Node is the node where it runs, "" if it has
	// none yet.
	Function, Node string
	Revision       uint64
	// Address is host:port, "" if the pod has none yet. Network is "tcp", or [podspec.TLS].
	Address, Network string
	// Started: its program runs. Ready: Kubernetes says that it is ready. Leaving: it is
	// being deleted or has ended.
	Started, Ready, Leaving bool
	// CreatedAt has a resolution of a second, as in Kubernetes.
	CreatedAt, ReadyAt time.Time
	Problem            PodProblem
}

// PodProblem is why an instance does not serve. Its Text is "" if there is no problem.
type PodProblem struct {
	Text string
	// Unplaced: it has no node. Hopeless: somebody must fix something, so requests should
	// not wait.
	Unplaced, Hopeless bool
}

// ReadPod returns a pod's state as the controller uses it.
func ReadPod(p *corev1.Pod) Pod {
	out := Pod{
		ID: cluster.InstanceID(p.Name), Function: provider.FullName(p.Labels[v1alpha1.FunctionLabel], p.Namespace), Node: p.Spec.NodeName,
		Leaving:   p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded,
		CreatedAt: p.CreationTimestamp.Time,
	}
	// An annotation that is no number leaves 0, which is no revision.
	out.Revision, _ = strconv.ParseUint(p.Annotations[v1alpha1.RevisionAnnotation], 10, 64)
	out.Address, out.Network = podspec.Address(p), podspec.Network(p)
	if s := podspec.Status(p); s != nil {
		out.Started = s.State.Running != nil
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			out.Ready, out.ReadyAt = true, c.LastTransitionTime.Time
		}
	}
	if !out.Ready && !out.Leaving {
		out.Problem = problem(p)
	}
	return out
}

// Instance returns the pod as an instance, the type that all backends use.
func (p Pod) Instance(config cluster.Config) cluster.Instance {
	in := cluster.Instance{
		InstanceSpec: cluster.InstanceSpec{ID: p.ID, Kind: cluster.Process, Function: p.Function, Revision: p.Revision, Node: p.Node, Config: config},
		State:        cluster.Starting, Network: p.Network, Address: p.Address, StartedAt: p.CreatedAt, ReadyAt: p.ReadyAt, Reason: p.Problem.Text,
	}
	switch {
	case p.Leaving:
		in.State = cluster.Stopping
	case p.Ready:
		in.State = cluster.Ready
	}
	return in
}

// hopelessRestarts is the number of exits in a row after which requests no longer wait for the next
// start.
const hopelessRestarts = 3

func problem(p *corev1.Pod) PodProblem {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return PodProblem{Text: "no node takes an instance: " + clip(c.Message), Unplaced: true}
		}
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil {
			if found, ok := waiting(s, w); ok {
				return found
			}
		}
		switch t := s.State.Terminated; {
		case t == nil:
		case s.Name == podspec.ContainerName(p):
			return PodProblem{Text: "an instance exited: " + exit(t)}
		case t.ExitCode != 0 || t.Signal != 0: // An init container that has done its work exits with 0.
			return PodProblem{Text: fmt.Sprintf("the container %s of an instance exited: %s", s.Name, exit(t))}
		}
	}
	return PodProblem{}
}

// waiting returns why a container has not been started.
func waiting(s corev1.ContainerStatus, w *corev1.ContainerStateWaiting) (PodProblem, bool) {
	switch w.Reason {
	case "InvalidImageName", "ErrImageNeverPull", "ImagePullBackOff", "ErrImagePull", "ImageInspectError", "RegistryUnavailable":
		// The first failure may be a passing problem of the registry.
		return PodProblem{Text: fmt.Sprintf("the image %q cannot be pulled (%s): %s", s.Image, w.Reason, clip(w.Message)), Hopeless: w.Reason != "ErrImagePull" && w.Reason != "RegistryUnavailable"}, true
	case "CrashLoopBackOff":
		text := "an instance exited soon after its start"
		if t := s.LastTerminationState.Terminated; t != nil {
			text += ": " + exit(t)
		}
		return PodProblem{Text: text, Hopeless: s.RestartCount >= hopelessRestarts}, true
	case "", "ContainerCreating", "PodInitializing":
		return PodProblem{}, false
	}
	return PodProblem{Text: fmt.Sprintf("an instance cannot be started (%s): %s", w.Reason, clip(w.Message))}, true
}

// exit describes how a container ended.
func exit(t *corev1.ContainerStateTerminated) string {
	how := fmt.Sprintf("exit code %d", t.ExitCode)
	if t.Signal != 0 {
		how = fmt.Sprintf("killed by signal %d", t.Signal)
	}
	if t.Reason == "OOMKilled" {
		how = "out of memory; its limits.memory says how much it may use"
	}
	return cmp.Or(strings.TrimSuffix(how+": "+clip(t.Message), ": "), how)
}

// clip shortens a message to 300 bytes.
func clip(s string) string {
	const limit = 300
	s = strings.TrimSpace(s)
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
