package backend_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes"
)

func waiting(reason, message string) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: "m", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	}
}

func failed(reason, message string) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) { s.Phase, s.Reason, s.Message = corev1.PodFailed, reason, message }
}

func terminated(reason string, code int32, message string) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		s.Phase = corev1.PodFailed
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: "m", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code, Message: message}}}}
	}
}

// Whatever keeps an instance from running is reported long before its time is up, and its
// pod is deleted.
func TestReasons(t *testing.T) {
	t.Parallel()
	const soon = time.Minute
	r := newRig(t, false)
	a, b := r.backend(), r.backend()
	for name, c := range map[string]struct {
		say  func(*corev1.PodStatus)
		want string
	}{
		"image":   {waiting("ErrImagePull", "manifest unknown"), "ErrImagePull: manifest unknown"},
		"back":    {waiting("ImagePullBackOff", ""), "ImagePullBackOff"},
		"name":    {waiting("InvalidImageName", ""), "InvalidImageName"},
		"config":  {waiting("CreateContainerConfigError", `secret "key" not found`), `CreateContainerConfigError: secret "key" not found`},
		"no room": {failed("OutOfcpu", "Node didn't have enough resource: cpu"), "OutOfcpu: Node didn't have enough resource: cpu"},
		"evicted": {failed("Evicted", "low on memory"), "evicted: low on memory"},
		"memory":  {terminated("OOMKilled", 137, ""), "out of memory (limit 64 MiB)"},
		"model":   {terminated("Error", 1, "a\nno such model\n"), "exit status 1: no such model"},
	} {
		// A machine that stands still tells late, but not each time.
		fastest := time.Hour
		for try := 0; try < 3 && fastest > soon; try++ {
			spec := r.start(a, 100)
			r.say(spec.ID, c.say)
			began := time.Now()
			for _, x := range []*backend{a, b} {
				in := x.await(spec.ID, cluster.Exited)
				if in.Reason != c.want && x == a { // The other may see the pod's deletion only.
					t.Errorf("%s: %q, want %q", name, in.Reason, c.want)
				}
			}
			fastest = min(fastest, time.Since(began))
		}
		if fastest > soon {
			t.Errorf("%s: told after %v", name, fastest)
		}
	}
	spec := r.start(a, 100)
	r.serves(spec.ID)
	a.await(spec.ID, cluster.Ready)
	r.say(spec.ID, terminated("Error", 139, ""))
	if in := a.await(spec.ID, cluster.Exited); in.Reason != "killed by signal 11" {
		t.Errorf("after it was ready: %q", in.Reason)
	}
	r.podIsGone(spec.ID)
}

func TestUnschedulable(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	b := r.backend()
	spec := r.spec(9000)
	if _, err := b.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	in := b.await(spec.ID, cluster.Exited)
	if !strings.Contains(in.Reason, "Unschedulable") || !strings.Contains(in.Reason, "Insufficient cpu") {
		t.Errorf("reason %q", in.Reason)
	}
	r.podIsGone(spec.ID)
}

func TestStartRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	b := r.backend()
	for want, change := range map[string]func(*cluster.InstanceSpec){
		"no node":        func(s *cluster.InstanceSpec) { s.Node = "elsewhere" },
		"does not exist": func(s *cluster.InstanceSpec) { s.Function = "other." + r.namespace },
		"no GPU":         func(s *cluster.InstanceSpec) { s.Config.GPU = 20 },
		"metadata.name":  func(s *cluster.InstanceSpec) { s.ID = "Not A Name" },
		"Deployment":     func(s *cluster.InstanceSpec) { s.Kind = cluster.Process },
	} {
		spec := r.spec(100)
		change(&spec)
		if _, err := b.Start(t.Context(), spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want a word of %q", err, want)
		}
	}
	if list, err := b.Instances(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("instances %+v, %v", list, err)
	}
	if n := r.one(b); n.Free != n.Total {
		t.Errorf("node %+v", n)
	}
}

func TestNodeGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	b := r.backend()
	spec := r.start(b, 100)
	r.serves(spec.ID)
	b.await(spec.ID, cluster.Ready)
	if err := shared.client.CoreV1().Nodes().Delete(t.Context(), r.node, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if in := b.await(spec.ID, cluster.Exited); in.Reason != "node "+r.node+" is gone" {
		t.Errorf("reason %q", in.Reason)
	}
	r.podIsGone(spec.ID)
	if list, err := b.Nodes(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("nodes %+v, %v", list, err)
	}
}

// A node that is not ready gets no new instances. Its instances are given up only when they
// no longer answer.
func TestNodeNotReady(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	b := r.backend()
	spec := r.start(b, 100)
	r.serves(spec.ID)
	b.await(spec.ID, cluster.Ready)
	r.answers.Store(true)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error { // Others write to it, too.
		node, err := shared.client.CoreV1().Nodes().Get(t.Context(), r.node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Status.Conditions[0].Status = corev1.ConditionUnknown
		_, err = shared.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r.until("it is not offered", func() string {
		if list, err := b.Nodes(t.Context()); err != nil || len(list) != 0 {
			return "offered"
		}
		return ""
	})
	if states, _ := b.history(spec.ID); !equal(states, "ready") {
		t.Errorf("told %v of an instance that answers", states)
	}
	r.answers.Store(false)
	if in := b.await(spec.ID, cluster.Exited); !strings.HasPrefix(in.Reason, "node lost") {
		t.Errorf("reason %q", in.Reason)
	}
	r.podIsGone(spec.ID)
}

func TestNeverReady(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	b := r.backend(func(o *kubernetes.Options) { o.StartTimeout = 8 * time.Second })
	spec := r.start(b, 100)
	r.runsWith(spec.ID, 100)
	if in := b.await(spec.ID, cluster.Exited); in.Reason != "not ready within 8s" {
		t.Errorf("reason %q", in.Reason)
	}
	// Its pod goes with a grace that a kubelet would take; here is none.
	r.until("the pod is told to go", func() string {
		if pod := r.pod(spec.ID); pod != nil && pod.DeletionTimestamp == nil {
			return "not told"
		}
		return ""
	})
}

// A kubelet that does not answer does not block the stop of an instance for ever.
func TestStopWithoutKubelet(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	b := r.backend()
	spec := r.start(b, 100)
	r.serves(spec.ID)
	b.await(spec.ID, cluster.Ready)
	stop(t, b, spec.ID)
	b.await(spec.ID, cluster.Exited)
	r.podIsGone(spec.ID)
}

// Instances ordered while the API server was away are created when it is back. Instances
// and nodes stay known, and exits in the meantime are reported.
func TestAPIServerAway(t *testing.T) {
	r := newRig(t, true)
	b := r.backend()
	running := r.start(b, 100)
	b.await(running.ID, cluster.Ready)
	if err := shared.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	later := r.spec(100)
	started := make(chan error, 1)
	go func() {
		_, err := b.Start(t.Context(), later)
		started <- err
	}()
	stopped := make(chan error, 1)
	go func() { stopped <- b.Stop(t.Context(), running.ID) }()
	if n := r.one(b); n.Name != r.node {
		t.Errorf("node %+v", n)
	}
	if err := shared.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-started, <-stopped); err != nil {
		t.Fatal(err)
	}
	b.await(later.ID, cluster.Ready)
	b.await(running.ID, cluster.Exited)
}
