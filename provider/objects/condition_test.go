package objects

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
)

var noon = metav1.NewTime(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))

func TestConditions(t *testing.T) {
	deployed := outcome{Generation: 3, Reason: "Deployed"}
	for name, c := range map[string]struct {
		came            outcome
		runs            provider.Status
		problem         string
		accepted, ready metav1.ConditionStatus
		reason, message string
	}{
		"serves":                        {deployed, provider.Status{Replicas: 2, AvailableReplicas: 2}, "", "True", "True", "Serving", ""},
		"idle":                          {deployed, provider.Status{}, "", "True", "True", "Idle", "the next request starts one"},
		"on the way":                    {deployed, provider.Status{Replicas: 2, AvailableReplicas: 1}, "", "True", "False", "InstancesMissing", "1 of 2"},
		"no image":                      {deployed, provider.Status{}, "ImagePullBackOff", "True", "False", "NotServed", "no instance is ready: ImagePullBackOff"},
		"idle, and without a GPU":       {deployed, provider.Status{Slight: true}, "the library is missing", "True", "True", "Idle", "the library is missing"},
		"crowded":                       {deployed, provider.Status{Replicas: 1, AvailableReplicas: 1}, "no node has room", "True", "True", "Serving", "no node has room"},
		"nonsense":                      {outcome{3, "Invalid", "bad key"}, provider.Status{}, "", "False", "False", "Invalid", "nothing runs: bad key"},
		"nonsense that leaves what ran": {outcome{3, "Invalid", "bad key"}, provider.Status{Replicas: 1, AvailableReplicas: 1}, "", "False", "True", "Serving", "the previous deployment is served: bad key"},
		"nonsense, and nobody asks":     {outcome{3, "Invalid", "bad key"}, provider.Status{}, "", "False", "True", "Idle", "the next request starts one: the previous deployment is served: bad key"},
	} {
		f := &v1alpha1.Function{}
		served := name != "nonsense"
		s := statusOf(f, c.came, c.runs, served, c.problem, provider.RolloutSummary{}, noon)
		accepted, ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAccepted), meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
		if accepted.Status != c.accepted || ready.Status != c.ready || ready.Reason != c.reason || !strings.Contains(ready.Message, c.message) || s.ObservedGeneration != 3 {
			t.Errorf("%s: %+v", name, s)
		}
		// Looked at again with nothing new, it is the same, so that nothing is written.
		f.Status = s
		if again := statusOf(f, c.came, c.runs, served, c.problem, provider.RolloutSummary{}, metav1.NewTime(noon.Add(time.Hour))); !equality.Semantic.DeepEqual(again, s) {
			t.Errorf("%s: %+v became %+v", name, s, again)
		}
	}
}

func TestMessagesAreShort(t *testing.T) {
	s := statusOf(&v1alpha1.Function{}, outcome{Reason: "Refused", Why: strings.Repeat("long\n", 10000)}, provider.Status{}, true, "", provider.RolloutSummary{Failed: strings.Repeat("long\n", 10000)}, noon)
	for _, c := range s.Conditions {
		if len(c.Message) > 1100 || strings.Contains(c.Message, "\n") {
			t.Errorf("%d bytes", len(c.Message))
		}
	}
}

func TestRolloutConditions(t *testing.T) {
	for want, rolled := range map[string]provider.RolloutSummary{
		"False NoRollout, False AsDeployed": {},
		"True RollingOut, False AsDeployed": {Progress: "revision 2 gets 5 %", Failed: "revision 1 was rolled back"},
		"False NoRollout, True RolledBack":  {Failed: "revision 2 was rolled back"},
	} {
		s := statusOf(&v1alpha1.Function{}, outcome{Reason: "Deployed"}, provider.Status{Replicas: 1, AvailableReplicas: 1}, true, "", rolled, noon)
		p, d := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionProgressing), meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionDegraded)
		if got := string(p.Status) + " " + p.Reason + ", " + string(d.Status) + " " + d.Reason; got != want {
			t.Errorf("%+v: %s, want %s", rolled, got, want)
		}
	}
}
