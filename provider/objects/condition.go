package objects

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
)

// reasonRolledBack is the reason of the conditions Degraded and Accepted after a gradual rollout that was rolled back.
const reasonRolledBack = "RolledBack"

// reasonRollingOut is the reason of the conditions Progressing and Accepted during a gradual rollout.
const reasonRollingOut = "RollingOut"

// reasonDownloading and reasonRefused are the reasons of the condition Accepted of a spec whose model is not here yet, and
// of one that cannot be deployed now.
const (
	reasonDownloading = "Downloading"
	reasonRefused     = "Refused"
)

// waits reports whether the deployment accepted last goes on serving in place of a spec, because of the reason of the
// spec's condition Accepted.
func waits(reason string) bool {
	return slices.Contains([]string{reasonRollingOut, reasonRolledBack, reasonDownloading, reasonRefused}, reason)
}

// outcome is the result of one generation of a spec: the reason of the condition Accepted,
// and in Why the problem, "" for none.
type outcome struct {
	Generation  int64
	Reason, Why string
}

// acceptedReason returns the reason of an object's condition Accepted, "" if that is not about the present spec.
func acceptedReason(f *v1alpha1.Function) string {
	c := meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionAccepted)
	if c == nil || c.ObservedGeneration != f.Generation {
		return ""
	}
	return c.Reason
}

// statusOf returns the new status of a function's object. served says that some
// deployment of the function runs, or would with the next request. Conditions keep the
// time of their last change.
func statusOf(f *v1alpha1.Function, came outcome, runs provider.Status, served bool, problem string, rolled provider.RolloutSummary, now metav1.Time) v1alpha1.FunctionStatus {
	s := v1alpha1.FunctionStatus{ObservedGeneration: came.Generation,
		Replicas: int64(runs.Replicas), AvailableReplicas: int64(runs.AvailableReplicas), Selector: v1alpha1.PodSelector(f.Name), Conditions: slices.Clone(f.Status.Conditions), Deployed: f.Status.Deployed}
	accepted := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: came.Reason,
		Message: oneLine(came.Why), ObservedGeneration: came.Generation, LastTransitionTime: now}
	if came.Why != "" {
		accepted.Status = metav1.ConditionFalse
	}
	ready := ready(runs, problem)
	switch {
	case came.Why == "":
	case served:
		ready.Message = oneLine(ready.Message + separated(ready.Message) + provider.Before(came.Why))
	default:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, came.Reason, "nothing runs: "+oneLine(came.Why)
	}
	ready.ObservedGeneration, ready.LastTransitionTime = came.Generation, now
	meta.SetStatusCondition(&s.Conditions, accepted)
	meta.SetStatusCondition(&s.Conditions, ready)
	for _, c := range []metav1.Condition{progressing(rolled), degraded(ready, rolled)} {
		c.ObservedGeneration, c.LastTransitionTime = came.Generation, now
		meta.SetStatusCondition(&s.Conditions, c)
	}
	return s
}

// progressing returns the condition Progressing without generation and time.
func progressing(rolled provider.RolloutSummary) metav1.Condition {
	if rolled.Progress == "" {
		return metav1.Condition{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: "NoRollout"}
	}
	return metav1.Condition{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue, Reason: reasonRollingOut, Message: oneLine(rolled.Progress)}
}

// degraded returns the condition Degraded without generation and time.
func degraded(ready metav1.Condition, rolled provider.RolloutSummary) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionFalse, Reason: "AsDeployed"}
	switch {
	case ready.Status == metav1.ConditionFalse && ready.Reason != "InstancesMissing":
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ready.Reason, ready.Message
	case rolled.Failed != "" && rolled.Progress == "":
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reasonRolledBack, oneLine(rolled.Failed)
	}
	return c
}

// ready returns the condition Ready without generation and time.
func ready(runs provider.Status, problem string) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Serving"}
	switch {
	case runs.AvailableReplicas < runs.Replicas:
		c.Status, c.Reason = metav1.ConditionFalse, "InstancesMissing"
		c.Message = fmt.Sprintf("%d of %d instances are ready", runs.AvailableReplicas, runs.Replicas)
	case problem != "" && !runs.Slight && runs.AvailableReplicas == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, "NotServed", "no instance is ready"
	case runs.Replicas == 0:
		c.Reason, c.Message = "Idle", "no instance is kept without load; the next request starts one"
	}
	if problem != "" {
		c.Message = oneLine(c.Message + separated(c.Message) + problem)
	}
	return c
}

// separated returns the separator after a text, "" after an empty one.
func separated(before string) string {
	if before == "" {
		return ""
	}
	return ": "
}

// oneLine makes a message one line of at most 1024 bytes.
func oneLine(s string) string {
	const maximum = 1024
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\n", " "), "")
	if len(s) > maximum {
		s = strings.ToValidUTF8(s[:maximum], "") + "…"
	}
	return s
}
