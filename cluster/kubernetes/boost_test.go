package kubernetes

import (
	"errors"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/faas-infer/faas-infer/cluster"
)

// small returns an instance with a quarter of a core, for which requests wait.
func small(id cluster.InstanceID) cluster.InstanceSpec {
	return cluster.InstanceSpec{ID: id, Function: "m.team", Node: "n0000", Awaited: true,
		Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 250, Memory: 1 << 30}}}
}

// podOf reads an instance's pod, and what it asks for and may use of a CPU in millicores.
func podOf(t *testing.T, client *fake.Clientset, id cluster.InstanceID) (pod *corev1.Pod, request, limit int64) {
	t.Helper()
	pod, err := client.CoreV1().Pods("team").Get(t.Context(), string(id), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	has := pod.Spec.Containers[0].Resources
	return pod, has.Requests.Cpu().MilliValue(), has.Limits.Cpu().MilliValue()
}

// An instance for which requests wait has most of a core until it is ready. It counts as what it will be, and its node has that
// much less to offer meanwhile.
func TestBoost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, client := starter()
		free := func() int {
			nodes, err := b.Nodes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return nodes[0].Free.CPU
		}
		in, err := b.Start(t.Context(), small("m-1"))
		if err != nil || in.Config.CPU != 250 {
			t.Fatalf("%+v, %v", in, err)
		}
		pod, request, limit := podOf(t, client, "m-1")
		if request != startingCPU || limit != startingCPU || free() != 8000-startingCPU {
			t.Errorf("it asks for %dm and may use %dm, of which %dm are left", request, limit, free())
		}
		b.podSeen(pod)
		e := b.entries["m-1"]
		if e.instance.Config.CPU != 250 {
			t.Errorf("it counts as %v", e.instance.Config)
		}
		unawaited := small("m-2")
		unawaited.Awaited = false
		if _, err := b.Start(t.Context(), unawaited); err != nil {
			t.Fatal(err)
		}
		if _, request, _ := podOf(t, client, "m-2"); request != 250 {
			t.Errorf("an instance for which nobody waits asks for %dm", request)
		}
		e.ready()
		synctest.Wait()
		pod, request, limit = podOf(t, client, "m-1")
		if request != 250 || limit != 250 {
			t.Errorf("a ready instance has %dm and %dm", request, limit)
		}
		b.podSeen(pod)
		synctest.Wait()
		if e.boost != 0 || e.resizing || free() != 7500 {
			t.Errorf("its share is still being changed, or %dm are not all that is left", free())
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Without room for more, and where quotas cannot be changed or a namespace has no more, an instance starts with its own.
func TestNoBoost(t *testing.T) {
	for name, prepare := range map[string]func(*Backend, *fake.Clientset){
		"a full node": func(b *Backend, _ *fake.Clientset) { b.fleet.nodes["n0000"].Allocatable.CPU = 899 },
		"a node that cannot resize": func(b *Backend, _ *fake.Clientset) {
			b.fleet.refusals = map[string]refusal{"n0000": {errInfeasible, b.options.Now().Add(-2 * refusalHolds)}}
		},
		"a quota": func(_ *Backend, client *fake.Clientset) {
			client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
				pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
				over := pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() > 250
				return over, nil, apierrors.NewForbidden(corev1.Resource("pods"), pod.Name, errors.New("exceeded quota"))
			})
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, client := starter()
			prepare(b, client)
			if _, err := b.Start(t.Context(), small("m-1")); err != nil {
				t.Fatal(name, err)
			}
			if _, request, limit := podOf(t, client, "m-1"); request != 250 || limit != 250 {
				t.Errorf("%s: it has %dm and %dm", name, request, limit)
			}
			if e := b.entries["m-1"]; e.resizing || e.boost != 0 {
				t.Errorf("%s: its share counts as being changed", name)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
