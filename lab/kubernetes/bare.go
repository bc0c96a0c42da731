package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	bareNamespace = "bare"
	// parallel is the number of pods that the bare client makes at the same time, the
	// same as the provider's.
	parallel = 64
)

// bare is a client that only makes pods. Its rate is what the API server can do.
type bare struct {
	client *kubernetes.Clientset
	nodes  int
	made   int
}

func newBare(config *rest.Config, nodes int) (*bare, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return &bare{client: client, nodes: nodes}, nil
}

// create makes n copies of a pod, with other names, nodes and sizes, and returns the time
// that it took.
func (b *bare) create(ctx context.Context, n int, like *corev1.Pod) (time.Duration, error) {
	began := time.Now()
	err := atOnce(n, func(i int) error {
		_, err := b.client.CoreV1().Pods(bareNamespace).Create(ctx, b.copied(like, b.made+i), metav1.CreateOptions{})
		return err
	})
	took := time.Since(began)
	b.made += n
	return took, err
}

// atOnce calls f with 0 to n-1, parallel of them at the same time, and returns all errors.
func atOnce(n int, f func(i int) error) error {
	turns := make(chan struct{}, parallel)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			errs[i] = f(i)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// copied returns the i-th copy of a pod, bound to a node.
func (b *bare) copied(like *corev1.Pod, i int) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("bare-%d", i), Namespace: bareNamespace,
		Labels: map[string]string{"bench": "bare"}, Annotations: like.Annotations}, Spec: *like.Spec.DeepCopy()}
	// Copies must fit beside the provider's pods, which fill the nodes.
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{fmt.Sprintf("kwok-%04d", i%b.nodes)}}},
		}}},
	}}
	return pod
}

// running returns the number of running pods in a namespace, and of all pods.
func (b *bare) running(ctx context.Context, namespace string) (running, all int, err error) {
	// The API server answers resource version 0 from its cache.
	pods, err := b.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return 0, 0, fmt.Errorf("list pods: %w", err)
	}
	for i := range pods.Items {
		if pods.Items[i].Status.Phase == corev1.PodRunning {
			running++
		}
	}
	return running, len(pods.Items), nil
}

// remove deletes the bare client's pods.
func (b *bare) remove(ctx context.Context) error {
	now := int64(0)
	if err := b.client.CoreV1().Pods(bareNamespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete pods: %w", err)
	}
	return nil
}

// any returns one of the provider's pods, without its node.
func (b *bare) any(ctx context.Context, namespace string) (*corev1.Pod, error) {
	pods, err := b.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	if len(pods.Items) == 0 {
		return nil, fmt.Errorf("there is no pod in %s", namespace)
	}
	pod := &pods.Items[0]
	pod.Spec.NodeName = ""
	return pod, nil
}
