package kubernetes

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/faas-infer/faas-infer/cluster"
)

// plainSpec is an instance of m.team on the only node.
func plainSpec(id cluster.InstanceID) cluster.InstanceSpec {
	s := withSecret(id)
	s.Secrets, s.Revision = nil, 3
	return s
}

// A pod beyond a quota is refused and not the function's fault. Nothing of the function starts
// until a pod of its namespace goes.
func TestBeyondAQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, client := starter()
		answer := errors.New("exceeded quota: cores, requested: cpu=1, used: cpu=4, limited: cpu=4")
		client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "m-1", answer)
		})
		var refused *cluster.RefusedError
		if _, err := b.Start(t.Context(), plainSpec("m-1")); !errors.As(err, &refused) || !strings.Contains(err.Error(), "exceeded quota: cores, requested: cpu=1, used: cpu=4") {
			t.Errorf("%v", err)
		}
		if names, why := b.Admitting("m.team", 3, nil, ""); names == nil || len(names) != 0 || !strings.Contains(why, "pods: exceeded quota: cores, requested: cpu=1, limited: cpu=4;") {
			t.Errorf("%v take it: %s", names, why)
		}
		b.podGone(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "another", Namespace: "team"}})
		if names, why := b.Admitting("m.team", 3, nil, ""); names != nil || why != "" {
			t.Errorf("with room %v take it: %s", names, why)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A refusal's reason is the same at each try, because it becomes the function's status.
func TestSteadyReason(t *testing.T) {
	for reason, want := range map[string]string{
		`pods "m-1" is forbidden: exceeded quota: cores, requested: cpu=1,memory=2Gi, used: cpu=3500m,memory=1Gi, limited: cpu=4,memory=8Gi`:                           "exceeded quota: cores, requested: cpu=1,memory=2Gi, limited: cpu=4,memory=8Gi",
		`admission webhook "policy" denied the request: pod m-1 has no owner`:                                                                                          `admission webhook "policy" denied the request: pod NAME has no owner`,
		"OutOfcpu: Pod was rejected: Node didn't have enough resource: cpu, requested: 1000, used: 3500, capacity: 4000":                                               "OutOfcpu: Pod was rejected: Node didn't have enough resource: cpu, requested: 1000, capacity: 4000",
		"UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 1, Available: 0, which is unexpected": "UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 1, which is unexpected",
		"evicted: The node was low on resource: memory. Threshold quantity: 100Mi, available: 52Ki. Container m was using 1Gi, request is 0.":                          "evicted: The node was low on resource: memory. Threshold quantity: 100Mi. Container m, request is 0.",
		"Unschedulable: 0/5 nodes are available: 3 Insufficient cpu.":                                                                                                  "Unschedulable: 0/5 nodes are available: 3 Insufficient cpu.",
	} {
		e := &entry{instance: cluster.Instance{InstanceSpec: cluster.InstanceSpec{ID: "m-1"}}}
		if got := e.steady(reason); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// A pod that the kubelet rejects ends its instance, which is not the function's fault. The node
// gets no other one for a while. A pod that fails on its own is.
func TestRejectedByTheKubelet(t *testing.T) {
	for name, c := range map[string]struct {
		status    corev1.PodStatus
		blameless bool
	}{
		"rejected": {corev1.PodStatus{Phase: corev1.PodFailed, Reason: "TopologyAffinityError", Message: "Pod was rejected: Resources cannot be allocated"}, true},
		"crashed": {corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{Name: "m",
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}}}}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, client := starter()
			b.announced = true
			go b.events.Run(b.ctx)
			if _, err := b.Start(t.Context(), plainSpec("m-1")); err != nil {
				t.Fatal(err)
			}
			pod, err := client.CoreV1().Pods("team").Get(t.Context(), "m-1", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			pod.Status, pod.Spec.NodeName = c.status, "n0000"
			b.podSeen(pod)
			in := <-b.Events()
			if in.State != cluster.Exited || in.Blameless != c.blameless {
				t.Errorf("%s: %+v", name, in)
			}
			names, why := b.Admitting("m.team", 3, nil, "")
			if refused := names != nil; refused != c.blameless || refused && (len(names) > 0 || !strings.Contains(why, "n0000") || !strings.Contains(why, "TopologyAffinityError")) {
				t.Errorf("%s: %v take it: %s", name, names, why)
			}
			if names, why := b.Admitting("m.team", 3, []string{}, "no node fits"); len(names) > 0 || why != "no node fits" {
				t.Errorf("%s: without a node %v take it: %s", name, names, why)
			}
			if names, why := b.Admitting("m.team", 4, nil, ""); names != nil || why != "" {
				t.Errorf("%s: of the next revision %v take it: %s", name, names, why)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A provider without the right to resize pods says so once, and does not try again for a while
// in that namespace.
func TestResizeIsForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, client := starter()
		tries := 0
		client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			tries++
			return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "m-1", errors.New(`User "x" cannot patch resource "pods/resize"`))
		})
		if _, err := b.Start(t.Context(), plainSpec("m-1")); err != nil {
			t.Fatal(err)
		}
		config := plainSpec("m-1").Config
		config.CPU = 500
		for range 3 {
			if err := b.Resize(t.Context(), "m-1", config); !errors.Is(err, errForbidden) || !strings.Contains(err.Error(), "namespace team") {
				t.Errorf("%v", err)
			}
		}
		if tries != 1 {
			t.Errorf("it was tried %d times", tries)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}
