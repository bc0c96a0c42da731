package migrate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// This file keeps a Service from losing its last address: a pod is ready some time before the cluster adds its address
// to the Service, and those of the pods that go are taken away at once.

// The pods of a function by who has made them.
const (
	oursOf   = v1alpha1.ManagedByLabel + "=" + v1alpha1.ManagedBy
	theirsOf = v1alpha1.ManagedByLabel + "!=" + v1alpha1.ManagedBy
)

// reached waits until the function's Service has the addresses of all ready pods that a selector selects, and of one at
// least: a busy node's pod can be unready for a moment after it was ready. It waits for nothing if there is no such
// Service, if it does not select these pods, or if the user may not read this.
func (m *Mover) reached(ctx context.Context, s Step, made string) error {
	return await(ctx, func() (string, error) {
		missing, err := m.unreached(ctx, s, made)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			return "", nil
		case err != nil:
			return "", fmt.Errorf("read the addresses of Service %s: %w", s.Name, err)
		case missing > 0:
			return fmt.Sprintf("Service %s lacks the addresses of %d pods", s.Name, missing), nil
		}
		return "", nil
	})
}

// unreached counts the ready pods of which the function's Service lacks the addresses. It counts those that are not
// ready, too, if the Service has no pod's address.
func (m *Mover) unreached(ctx context.Context, s Step, made string) (missing int, err error) {
	service, err := m.Client.CoreV1().Services(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil || len(service.Spec.Selector) == 0 {
		return 0, err
	}
	pods, err := m.Client.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.FormatLabels(service.Spec.Selector) + "," + made,
	})
	if err != nil {
		return 0, err
	}
	slices, err := m.Client.DiscoveryV1().EndpointSlices(s.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + s.Name,
	})
	if err != nil {
		return 0, err
	}
	has := map[string]bool{}
	for i := range slices.Items {
		for _, e := range slices.Items[i].Endpoints {
			if e.TargetRef != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				has[e.TargetRef.Name] = true
			}
		}
	}
	reached, unready := 0, 0
	for i := range pods.Items {
		switch p := &pods.Items[i]; {
		case p.DeletionTimestamp != nil:
		case has[p.Name]:
			reached++
		case isReady(p):
			missing++
		default:
			unready++
		}
	}
	if reached == 0 {
		missing += unready
	}
	return missing, nil
}

// isReady reports whether a pod is ready.
func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
