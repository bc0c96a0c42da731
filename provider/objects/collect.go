package objects

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// usedAnnotation of a profile's ConfigMap has the time when a function had its model last.
const usedAnnotation = "faas-infer.dev/used"

const (
	// unusedFor is how long a profile stays after the last function with its model is gone: the
	// function may come back, and measuring a model takes minutes.
	unusedFor = 30 * 24 * time.Hour
	// usedStep is the least time between two writes of usedAnnotation.
	usedStep = 24 * time.Hour
)

// fate is what becomes of a profile's ConfigMap.
type fate uint8

const (
	stays fate = iota
	// marked: it gets the time of its last use.
	marked
	// collected: it is deleted.
	collected
)

// fateOf decides about a profile's ConfigMap. used reports whether a function has a model with
// the given hash. Whatever the provider has not written itself stays, such as operators' profiles.
func fateOf(c *corev1.ConfigMap, used func(hash string) bool, now time.Time) fate {
	_, operators := c.Labels[OperatorsLabel]
	hash, _, found := strings.Cut(c.Data[keyOf], " ")
	if operators || !found || c.Labels[KindLabel] != kindProfile || c.Labels[v1alpha1.ManagedByLabel] != v1alpha1.ManagedBy {
		return stays
	}
	last, err := time.Parse(time.RFC3339, c.Annotations[usedAnnotation])
	if err != nil {
		last = c.CreationTimestamp.Time
	}
	switch {
	case used(hash) && (err != nil || now.Sub(last) >= usedStep):
		return marked
	case !used(hash) && now.Sub(last) >= unusedFor:
		return collected
	}
	return stays
}

// Collect deletes the profiles of models that no function has had for 30 days. used reports
// whether a function has a model with the given hash. Call it now and then while this replica
// leads.
func (s *HistoryStore) Collect(ctx context.Context, used func(hash string) bool, now time.Time) error {
	all, err := s.lister.List(labels.SelectorFromSet(labels.Set{KindLabel: kindProfile}))
	for _, c := range all {
		if ctx.Err() != nil || !s.leading() {
			return err
		}
		switch fateOf(c, used, now) {
		case marked:
			text := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, usedAnnotation, now.UTC().Format(time.RFC3339))
			_, failed := s.client.CoreV1().ConfigMaps(s.namespace).Patch(ctx, c.Name, types.MergePatchType, text, metav1.PatchOptions{})
			err = errors.Join(err, ignoreGone(failed))
		case collected:
			only := metav1.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion}
			failed := s.client.CoreV1().ConfigMaps(s.namespace).Delete(ctx, c.Name, metav1.DeleteOptions{Preconditions: &only})
			err = errors.Join(err, ignoreGone(failed))
		}
	}
	if err != nil {
		return fmt.Errorf("collect the profiles of models without functions: %w", err)
	}
	return nil
}

// ignoreGone is nil for an object that is gone or has changed meanwhile.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
