package kubernetes

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// Pair records in a shadow's pod that it is given to another body, so that the replicas that follow, and
// the next provider, know it. An instance that is gone is not an error.
func Pair(ctx context.Context, b *Backend, id, body cluster.InstanceID) error {
	e, err := b.find(id)
	if err != nil || e == nil || !isClosed(e.begun) {
		return err
	}
	spec, err := e.shadow()
	if err != nil {
		return fmt.Errorf("pair %s: %w", id, err)
	}
	spec.Body = body
	patch, err := podspec.Paired(spec)
	if err != nil {
		return fmt.Errorf("pair %s: %w", id, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = b.options.Client.CoreV1().Pods(e.namespace).Patch(ctx, string(id), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: v1alpha1.ManagedBy})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("pair %s: %w", id, err)
	}
	return nil
}

// shadow returns the spec of a shadow.
func (e *entry) shadow() (cluster.InstanceSpec, error) {
	e.backend.mu.Lock()
	defer e.backend.mu.Unlock()
	spec := e.instance.InstanceSpec
	if spec.Role != cluster.Shadow {
		return spec, errors.New("it is no shadow")
	}
	return spec, nil
}
