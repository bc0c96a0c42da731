package kubernetes

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// A shadow that is given to another body has that in its pod. Another replica that sees the pod says so, and
// so does one that starts later.
func TestPairIsInThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, client := starter()
		follower, _ := starter()
		follower.announced = true
		spec := cluster.InstanceSpec{ID: "m-2", Function: "m.team", Node: "n0000", Role: cluster.Shadow, Part: "0:18", Body: "m-1",
			Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 500, Memory: 1 << 28}}}
		if _, err := b.Start(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		show := func() (label string) {
			t.Helper()
			pod, err := client.CoreV1().Pods("team").Get(t.Context(), "m-2", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, to := range []*Backend{b, follower} {
				to.podSeen(podspec.Trim(pod))
			}
			return pod.Labels[v1alpha1.BodyLabel]
		}
		body := func(of *Backend) cluster.InstanceID {
			all, err := of.Instances(t.Context())
			if err != nil || len(all) != 1 {
				t.Fatal(all, err)
			}
			return all[0].Body
		}
		if label := show(); label != "m-1" || body(follower) != "m-1" {
			t.Errorf("the pod is labelled %q, and a follower knows %q", label, body(follower))
		}
		if err := Pair(t.Context(), b, "m-2", "m-3"); err != nil {
			t.Fatal(err)
		}
		go follower.events.Run(follower.ctx)
		if label := show(); label != "m-3" || body(b) != "m-3" || body(follower) != "m-3" {
			t.Errorf("the pod is labelled %q; its replicas know %q and %q", label, body(b), body(follower))
		}
		if first, then := <-follower.Events(), <-follower.Events(); first.Body != "m-1" || then.Body != "m-3" {
			t.Errorf("the follower reported the bodies %q and %q", first.Body, then.Body)
		}
		if err := Pair(t.Context(), b, "gone", "m-3"); err != nil {
			t.Errorf("a shadow that is gone: %v", err)
		}
		whole := spec
		whole.ID, whole.Role, whole.Part, whole.Body = "m-4", cluster.Body, "", ""
		if _, err := b.Start(t.Context(), whole); err != nil {
			t.Fatal(err)
		}
		if err := Pair(t.Context(), b, "m-4", "m-3"); err == nil {
			t.Error("a body was given to another")
		}
		for _, x := range []*Backend{b, follower} {
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
