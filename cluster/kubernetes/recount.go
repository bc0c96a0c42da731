package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// Recount marks a pod of one of a function's instances with a text that no pod had before.
// Kubernetes calculates a PodDisruptionBudget again when one of its pods changes, but not when
// the number of pods that there should be changes. Recount does nothing if the function has
// no instance.
func (b *Backend) Recount(ctx context.Context, function, mark string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1alpha1.CountedAnnotation: mark}}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for range 2 { // The first one may go meanwhile.
		e := oneOf(b, function)
		if e == nil {
			return nil
		}
		_, err = b.options.Client.CoreV1().Pods(e.namespace).Patch(ctx, string(e.instance.ID), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: v1alpha1.ManagedBy})
		if err == nil || !apierrors.IsNotFound(err) {
			break
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("mark a pod of %s: %w", function, err)
	}
	return nil
}

// oneOf returns an instance of a function that has a pod and is not ending, nil if there is
// none.
func oneOf(b *Backend, function string) *entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries {
		if e.instance.Function == function && e.pod != nil && e.instance.State != cluster.Stopping {
			return e
		}
	}
	return nil
}
