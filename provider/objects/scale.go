package objects

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
)

// scaleHold is how long a function must have had fewer pods before its published number
// falls. An evicted pod is replaced within a second or two. If the number fell meanwhile, a
// PodDisruptionBudget would allow the next eviction.
const scaleHold = 10 * time.Second

// scale decides what a function's scale subresource publishes: how many pods the function
// should have. PodDisruptionBudgets compare that with the ready ones. The zero value has
// published nothing.
type scale struct {
	shown int64
	// below is since when there have been fewer pods than shown, zero if there are not.
	// highest is the highest number since then.
	below   time.Time
	highest int64
}

// look takes in how many pods there should be now, and returns the number to publish. It
// rises at once. It falls to the highest number of the last scaleHold, but not while the
// function is short of pods: those that it lost have no room or fail, and are still wanted.
func (s *scale) look(now time.Time, pods int64, short bool) int64 {
	switch {
	case pods >= s.shown:
		s.shown, s.below = pods, time.Time{}
	case short:
		s.below = time.Time{}
	case s.below.IsZero():
		s.below, s.highest = now, pods
	default:
		s.highest = max(s.highest, pods)
		if now.Sub(s.below) >= scaleHold {
			s.shown, s.below, s.highest = s.highest, now, pods
		}
	}
	return s.shown
}

// published is what this replica publishes of the object with the UID of.
type published struct {
	scale
	of types.UID
}

// forgetScales drops the scales of functions that are gone.
func (w *watcher) forgetScales(all []*v1alpha1.Function) {
	if len(w.scales) <= len(all) {
		return
	}
	there := map[string]bool{}
	for _, f := range all {
		there[f.Namespace+"/"+f.Name] = true
	}
	maps.DeleteFunc(w.scales, func(key string, _ *published) bool { return !there[key] })
}

// count publishes how many pods a function should have, if the number has changed. Only
// report calls it, for one function after another.
func (w *watcher) count(f *v1alpha1.Function) (n int64, changed bool) {
	runs, served := w.Status(provider.FullName(f.Name, f.Namespace))
	if _, scaled := f.Scaled(); !served || scaled || w.noScale.Load() {
		return 0, false
	}
	key := f.Namespace + "/" + f.Name
	p := w.scales[key]
	if p == nil || p.of != f.UID {
		p = &published{scale: scale{shown: max(0, f.Counted())}, of: f.UID}
		w.scales[key] = p
	}
	n = p.look(w.now(), int64(max(runs.Pods, runs.Replicas)), runs.Short)
	return n, n != f.Counted()
}

// writeCount writes the number of a function's pods, and makes Kubernetes calculate the
// budgets again. It returns nil if the function has changed meanwhile: the next look sees it.
func (w *watcher) writeCount(ctx context.Context, f *v1alpha1.Function, n int64) error {
	written, err := w.merge(ctx, f, map[string]any{v1alpha1.InstancesAnnotation: strconv.FormatInt(n, 10)}, map[string]any{"instances": n})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("function %s.%s: %w", f.Name, f.Namespace, err)
	case written.Counted() != n:
		if !w.noScale.Swap(true) {
			w.log.Warn().Msg("PodDisruptionBudgets of models do not work: the definition of functions is older than the provider; apply its yaml/crd.yaml and restart the provider")
		}
		return nil
	}
	if w.Recount == nil {
		return nil
	}
	// A missing right was logged at the start.
	if err := w.Recount(ctx, provider.FullName(f.Name, f.Namespace), written.ResourceVersion); err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("function %s.%s: budgets count a changed number of pods only later: %w", f.Name, f.Namespace, err)
	}
	return nil
}

// takeScale makes a number that somebody else has written to the scale subresource the
// function's replicas. The watch brings the change back.
func (w *watcher) takeScale(ctx context.Context, f *v1alpha1.Function, n int64) (again bool) {
	_, err := w.merge(ctx, f, map[string]any{v1alpha1.InstancesAnnotation: strconv.FormatInt(n, 10)}, map[string]any{"replicas": n})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		w.log.Error().Str("function", f.Name+"."+f.Namespace).Err(err).Msg("a function's new number of replicas could not be written; the provider tries again")
	}
	return err != nil
}
