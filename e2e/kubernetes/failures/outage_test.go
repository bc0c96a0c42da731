package failures

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API server is away for 30 s under load. Every request is answered, and changes
// requested meanwhile are done afterwards.
func TestAPIServerStopped(t *testing.T) {
	away := 30 * time.Second
	if testing.Short() {
		away = 5 * time.Second
	}
	nodes(t, 3, "4")
	r := open(t, shared.Config(), nil)
	defer end(t, r)
	converges(t, r, map[string]int{"a": 2, "b": 3})
	before := state(t, r)
	l := begin(t, 10*time.Millisecond, []string{"a", "b"}, r)
	if err := shared.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	scale(t, r, "a", 4)
	timer := time.After(away)
	<-timer
	eventually(t, "b's instances serve while the API server is away", func() string {
		if got := r.Ready("b"); got != 3 { // On a busy machine one may be late for a moment.
			return fmt.Sprintf("%d do, want 3", got)
		}
		return ""
	})
	if err := shared.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("the API server was away for %v", time.Since(began).Round(time.Second))
	converges(t, r, map[string]int{"a": 4, "b": 3})
	l.end()
	scale(t, r, "a", 2)
	converges(t, r, map[string]int{"a": 2, "b": 3})
	// Instances that the load was exchanged for are exchanged back.
	eventually(t, "all is as before", func() string {
		if after := state(t, r); after != before {
			return "after\n" + after + "\nbefore\n" + before
		}
		return ""
	})
}

// A node is lost with its instances. Others answer their requests, and the instance is
// replaced on another node.
func TestNodeGone(t *testing.T) {
	apart(t)
	nodes(t, 8, "300m") // One instance each.
	r := open(t, shared.Config(), nil)
	defer end(t, r)
	converges(t, r, map[string]int{"a": 2, "b": 3})
	node := of(t, "a")[0].Spec.NodeName
	var lost []*corev1.Pod
	for _, p := range pods(t) {
		if p.Spec.NodeName == node {
			lost = append(lost, p)
		}
	}
	l := begin(t, 10*time.Millisecond, []string{"a", "b"}, r)
	lose(t, r, lost, func() {
		if err := shared.client.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	eventually(t, "instances are replaced", func() string {
		for name, want := range map[string]int{"a": 2, "b": 3} {
			if r.Ready(name) != want {
				return name + " is short of instances"
			}
		}
		return ""
	})
	l.end()
	instances, err := r.Backend.Instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range instances {
		if in.Node == node {
			t.Errorf("%s is on the node that is gone", in.ID)
		}
	}
	for _, p := range lost { // Nobody's kubelet ends them.
		_ = shared.client.CoreV1().Pods(p.Namespace).Delete(context.Background(), p.Name, *metav1.NewDeleteOptions(0))
	}
}

// A pod is evicted, as for an upgrade of its node. No request is lost, and another pod
// replaces it.
func TestPodEvicted(t *testing.T) {
	apart(t)
	nodes(t, 3, "4")
	r := open(t, shared.Config(), nil)
	defer end(t, r)
	converges(t, r, map[string]int{"a": 2, "b": 3})
	l := begin(t, 10*time.Millisecond, []string{"a", "b"}, r)
	evicted := of(t, "a")[:1]
	err := shared.client.CoreV1().Pods(evicted[0].Namespace).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: evicted[0].Name, Namespace: evicted[0].Namespace}})
	if err != nil {
		t.Fatal(err)
	}
	lose(t, r, evicted, func() {})
	converges(t, r, map[string]int{"a": 2, "b": 3})
	l.end()
}

// An image that cannot be pulled is reported long before the timeout of its start. Other
// functions keep serving.
func TestImageThatCannotBePulled(t *testing.T) {
	apart(t)
	played := nodes(t, 2, "4")
	r := open(t, shared.Config(), nil)
	defer end(t, r)
	converges(t, r, map[string]int{"a": 2, "b": 3})
	// From now on instances start on a node that nobody plays: the test says what a
	// kubelet would.
	node := nobodys(t, "4")
	if _, err := shared.Kubectl(t.Context(), "", append([]string{"cordon"}, played...)...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "only that node takes instances", func() string {
		offered, err := r.Backend.Nodes(t.Context())
		if err != nil || len(offered) != 1 || offered[0].Name != node {
			return fmt.Sprintf("%+v, %v do", offered, err)
		}
		return ""
	})
	defer func() { // So that somebody ends what is left there.
		if _, err := shared.Kubectl(context.Background(), "", "annotate", "node", node, "kwok.x-k8s.io/node=fake"); err != nil {
			t.Error(err)
		}
	}()
	l := begin(t, 20*time.Millisecond, []string{"a"}, r)
	scale(t, r, "b", 4)
	var pending *corev1.Pod
	eventually(t, "a pod is on the node", func() string {
		for _, p := range of(t, "b") {
			if p.Spec.NodeName == node {
				pending = p
				return ""
			}
		}
		return "none"
	})
	eventually(t, "its status is written", func() string { return notPulled(t, pending.Name) })
	began := time.Now()
	eventually(t, "the function's description says so", func() string {
		d, _ := r.Controller.Describe("b." + pending.Namespace)
		if !strings.Contains(d.Problem, "ErrImagePull: manifest unknown") {
			return d.Problem
		}
		return ""
	})
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
	l.end()
	scale(t, r, "b", 3)
}

// nobodys makes a node without kwok for a test and returns its name.
func nobodys(t *testing.T, cores string) string {
	t.Helper()
	name := label(t) + "-nobodys"
	err := shared.AddNodes(t.Context(), 1, cores, "16Gi", func(node *corev1.Node) {
		node.Name, node.Annotations = name, nil
		node.Labels[corev1.LabelHostname], node.Labels[testLabel] = name, label(t)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := shared.Kubectl(context.Background(), "", "delete", "node", "--ignore-not-found", name); err != nil {
			t.Error(err)
		}
	})
	return name
}

// notPulled sets a pod's status like a kubelet that cannot pull the image. It returns the
// error of that, or "".
func notPulled(t *testing.T, name string) string {
	t.Helper()
	pods := shared.client.CoreV1().Pods(where(t).namespace)
	p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, Image: "x", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "manifest unknown"}}}}
	if _, err := pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		return err.Error()
	}
	return ""
}
