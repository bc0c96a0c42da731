package backend_test

import (
	"context"
	"testing"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes"
)

// A placeholder for a missing node is pending by the scheduler's own verdict, on which the cluster
// autoscaler and Karpenter act, although the nodes that exist have room for less. It gets the node that
// is added, and is gone as soon as that counts.
func TestPlaceholderGetsTheNewNode(t *testing.T) {
	r := newRig(t, true)
	core := shared.client.CoreV1()
	filler := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "filler", Namespace: r.namespace}, Spec: corev1.PodSpec{NodeSelector: map[string]string{"test": r.namespace},
		Containers: []corev1.Container{{Name: "c", Image: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}}}}}
	if _, err := core.Pods(r.namespace).Create(t.Context(), filler, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := placeholders(t, shared.client, r.namespace, "test="+r.namespace)
	want := func(n int) {
		p.Want([]kubernetes.MissingNodes{{Kind: "cpu", Count: n, Size: cluster.Resources{CPU: 8000, Memory: 8 << 30}}})
	}
	want(0)
	await := func(what string, done func() bool) {
		t.Helper()
		r.until(what, func() string {
			if done() {
				return ""
			}
			return "not yet"
		})
	}
	await("the filler", func() bool {
		pod, err := core.Pods(r.namespace).Get(t.Context(), "filler", metav1.GetOptions{})
		return err == nil && pod.Spec.NodeName == r.node
	})
	want(1)
	placeholder := func() *corev1.Pod {
		pod, err := core.Pods(r.namespace).Get(t.Context(), "faas-infer-node-cpu-0", metav1.GetOptions{})
		if err != nil {
			return &corev1.Pod{}
		}
		return pod
	}
	await("the scheduler's verdict", func() bool {
		for _, c := range placeholder().Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
				return true
			}
		}
		return false
	})
	if pod := placeholder(); pod.Spec.NodeName != "" || pod.Status.Phase != corev1.PodPending || pod.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] != "true" {
		t.Errorf("the placeholder is %+v", pod)
	}
	added := r.namespace + "-added"
	r.addNode(added, true, nil)
	await("the placeholder on the new node", func() bool {
		pod := placeholder()
		return pod.Spec.NodeName == added && pod.Status.Phase == corev1.PodRunning
	})
	want(0)
	await("its end", func() bool {
		_, err := core.Pods(r.namespace).Get(t.Context(), "faas-infer-node-cpu-0", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// placeholders runs placeholder pods for nodes with a label until the test ends.
func placeholders(t *testing.T, client clientset.Interface, namespace, label string) *kubernetes.Placeholders {
	t.Helper()
	p, err := kubernetes.NewPlaceholders(kubernetes.PlaceholderOptions{Client: client, Namespace: namespace, Image: "pause", NodeSelector: label, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return p
}
