package kubernetes

import (
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
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

// say has the node report what an instance's container has of a CPU in millicores, 0 for nothing, with a reason why a
// resize is pending, "" for none, and has backends see the pod.
func say(t *testing.T, client *fake.Clientset, id cluster.InstanceID, cpu int64, pending string, see ...*Backend) {
	t.Helper()
	pod, _, _ := podOf(t, client, id)
	status := corev1.ContainerStatus{
		Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}
	if cpu > 0 {
		has := corev1.ResourceList{corev1.ResourceCPU: podspec.CPU(int(cpu))}
		status.Resources = &corev1.ResourceRequirements{Requests: has, Limits: has}
	}
	pod.Status.ContainerStatuses, pod.Status.Conditions = []corev1.ContainerStatus{status}, nil
	if pending != "" {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: pending,
		}}
	}
	if _, err := client.CoreV1().Pods("team").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, b := range see {
		b.podSeen(podspec.Trim(pod))
	}
	synctest.Wait()
}

// resizes notes the quotas in millicores that resizes ask for.
func resizes(client *fake.Clientset) *[]int64 {
	var quotas []int64
	client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		get := a.(clienttesting.PatchAction)
		o, err := client.Tracker().Get(a.GetResource(), a.GetNamespace(), get.GetName())
		if err != nil || a.GetSubresource() != "resize" {
			return false, nil, nil
		}
		for _, s := range o.(*corev1.Pod).Status.ContainerStatuses {
			if s.State.Running != nil && s.Resources == nil { // As the API server does.
				return true, nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), get.GetName(), nil)
			}
		}
		return false, nil, nil
	})
	client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "resize" {
			return false, nil, nil
		}
		var pod corev1.Pod
		err := json.Unmarshal(a.(clienttesting.PatchAction).GetPatch(), &pod)
		quotas = append(quotas, pod.Spec.Containers[0].Resources.Limits.Cpu().MilliValue())
		return false, nil, err
	})
	return &quotas
}

// free returns the CPU in millicores that the node has to offer.
func free(t *testing.T, b *Backend) int {
	t.Helper()
	nodes, err := b.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return nodes[0].Free.CPU
}

// started starts an instance for which requests wait, and checks that its pod has more CPU.
func started(t *testing.T, b *Backend, client *fake.Clientset, id cluster.InstanceID) *entry {
	t.Helper()
	in, err := b.Start(t.Context(), small(id))
	if err != nil || in.Config.CPU != 250 {
		t.Fatalf("%+v, %v", in, err)
	}
	pod, request, limit := podOf(t, client, id)
	if request != startingCPU || limit != startingCPU {
		t.Fatalf("it asks for %dm and may use %dm", request, limit)
	}
	b.podSeen(podspec.Trim(pod))
	return b.entries[id]
}

// An instance for which requests wait has most of a core until it is ready. It counts as what it will be, and its
// node has that much less to offer meanwhile.
func TestBoost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, client := starter()
		quotas := resizes(client)
		e := started(t, b, client, "m-1")
		if free(t, b) != 8000-startingCPU || e.instance.Config.CPU != 250 {
			t.Errorf("it counts as %v, and %dm are left", e.instance.Config, free(t, b))
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
		resized := make(chan error, 1)
		larger := e.instance.Config
		larger.CPU = 500
		go func() { resized <- b.Resize(t.Context(), "m-1", larger) }()
		synctest.Wait()
		say(t, client, "m-1", 0, "", b)
		if len(*quotas) > 0 {
			t.Errorf("a node that does not report what the pod has is asked for %v", *quotas)
		}
		say(t, client, "m-1", startingCPU, "", b)
		say(t, client, "m-1", startingCPU, "", b)
		if free(t, b) != 8000-startingCPU-250 || !e.resizing {
			t.Errorf("before the node has changed it, %dm are left", free(t, b))
		}
		say(t, client, "m-1", 250, "", b)
		if pod, request, limit := podOf(t, client, "m-1"); request != 500 || limit != 500 || podspec.StartingCPU(pod) != 0 {
			t.Errorf("a resize as soon as it is ready leaves it with %dm and %dm", request, limit)
		}
		say(t, client, "m-1", 500, "", b)
		if err := <-resized; err != nil || !slices.Equal(*quotas, []int64{250, 500}) {
			t.Errorf("%v; the quotas are %v", err, *quotas)
		}
		if e.boost != 0 || e.resizing || free(t, b) != 7250 {
			t.Errorf("its share is still being changed, or %dm are not all that is left", free(t, b))
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// An instance counts as what it has if its node does not take the CPU back. A node that cannot is not tried again.
func TestBoostIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		reported int64
		pending  string
		after    time.Duration
		again    bool // The next instance is given more, too.
	}{
		"infeasible":       {startingCPU, corev1.PodReasonInfeasible, 0, false},
		"deferred":         {startingCPU, corev1.PodReasonDeferred, boostPatience, true},
		"not changed":      {startingCPU, "", boostPatience, true},
		"an older kubelet": {0, "", reportPatience, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, client := starter()
			quotas := resizes(client)
			e := started(t, b, client, "m-1")
			say(t, client, "m-1", c.reported, "", b)
			e.ready()
			synctest.Wait()
			if asked := len(*quotas) > 0; asked != (c.reported > 0) {
				t.Errorf("%s: the quotas are %v", name, *quotas)
			}
			say(t, client, "m-1", c.reported, c.pending, b)
			if c.after > 0 {
				pod, _, _ := podOf(t, client, "m-1")
				if podspec.StartingCPU(pod) == 0 || !e.resizing || free(t, b) != 8000-startingCPU {
					t.Errorf("%s: it is given up at once", name)
				}
				if err := b.Resize(t.Context(), "m-1", small("").Config); !errors.Is(err, errBoosted) {
					t.Errorf("%s: a resize meanwhile: %v", name, err)
				}
				time.Sleep(c.after + maxBoostPause + resizeTimeout) // Of virtual time.
				synctest.Wait()
			}
			pod, request, limit := podOf(t, client, "m-1")
			if request != startingCPU || limit != startingCPU || podspec.StartingCPU(pod) != 0 {
				t.Errorf("%s: its spec says %dm and %dm; %v", name, request, limit, pod.Annotations)
			}
			say(t, client, "m-1", c.reported, "", b)
			if e.instance.Config.CPU != startingCPU || free(t, b) != 8000-startingCPU || e.resizing {
				t.Errorf("%s: it counts as %v, and %dm are left", name, e.instance.Config, free(t, b))
			}
			before := len(*quotas)
			time.Sleep(time.Hour) // Of virtual time.
			if len(*quotas) != before || before > 32 {
				t.Errorf("%s: after %d tries it was tried again: %v", name, before, *quotas)
			}
			if _, err := b.Start(t.Context(), small("m-2")); err != nil {
				t.Fatal(name, err)
			}
			if _, request, _ := podOf(t, client, "m-2"); (request == startingCPU) != c.again {
				t.Errorf("%s: the next instance has %dm", name, request)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The next leader takes back the CPU that the one before has given an instance, wherever that one was killed. A
// replica that does not lead only watches.
func TestNextLeaderEndsBoost(t *testing.T) {
	for name, patched := range map[string]bool{"while it starts": false, "during the resize": true} {
		synctest.Test(t, func(t *testing.T) {
			first, client := starter()
			was := started(t, first, client, "m-1")
			say(t, client, "m-1", startingCPU, "", first)
			if patched {
				was.ready()
				synctest.Wait()
			}
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			quotas := resizes(client)
			b, _ := starter()
			var leads atomic.Bool
			b.options.Client, b.options.Leading = client, leads.Load
			say(t, client, "m-1", startingCPU, "", b)
			e := b.entries["m-1"]
			if e.instance.Config.CPU != 250 || free(t, b) != 8000-startingCPU {
				t.Fatalf("%s: it counts as %v, and %dm are left", name, e.instance.Config, free(t, b))
			}
			e.ready()
			time.Sleep(time.Hour) // Of virtual time.
			if len(*quotas) > 0 {
				t.Errorf("%s: a replica that does not lead asks for %v", name, *quotas)
			}
			leads.Store(true)
			time.Sleep(time.Second)
			say(t, client, "m-1", 250, "", b)
			if pod, request, _ := podOf(t, client, "m-1"); request != 250 || podspec.StartingCPU(pod) != 0 {
				t.Errorf("%s: it has %dm, and %v", name, request, pod.Annotations)
			}
			if e.instance.Config.CPU != 250 || e.boost != 0 || e.resizing || free(t, b) != 7750 {
				t.Errorf("%s: it counts as %v in the end, and %dm are left", name, e.instance.Config, free(t, b))
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Without room for more, and where quotas cannot be changed or a namespace has no more, an instance starts with its
// own.
func TestNoBoost(t *testing.T) {
	for name, prepare := range map[string]func(*Backend, *fake.Clientset){
		"a full node": func(b *Backend, _ *fake.Clientset) { b.fleet.nodes["n0000"].Allocatable.CPU = 899 },
		"a node that cannot resize": func(b *Backend, _ *fake.Clientset) {
			b.fleet.refusals = map[string]refusal{"n0000": {errInfeasible, b.options.Now().Add(-2 * refusalHolds)}}
		},
		"an old kubelet": func(b *Backend, _ *fake.Clientset) { b.fleet.nodes["n0000"].NoResize = true },
		"an old API server": func(b *Backend, client *fake.Clientset) {
			pods := []metav1.APIResource{{Name: "pods"}}
			client.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: pods}}
			if lacksResize(client) {
				b.fleet.refuse(anyNode, refusal{ErrNoResize, b.options.Now()})
			}
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
