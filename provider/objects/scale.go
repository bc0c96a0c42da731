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

// noScalePause is how long no number is published after the API server has dropped one, because
// the definition of functions has no field for it.
const noScalePause = 10 * time.Minute

// settleTime is how long after the first look at a function its budgets are calculated once more.
// An earlier leader may have stopped between the write of a number and the mark that makes
// Kubernetes calculate. And Kubernetes' controller manager learns new kinds twice a minute:
// a budget whose pods become ready before that fails for an unknown kind, allows no eviction, and is
// not tried again until one of its pods changes.
const settleTime = 45 * time.Second

// scale decides what a function's scale subresource publishes: how many pods the function
// should have. PodDisruptionBudgets compare that with the ready ones. The zero value has
// published nothing.
type scale struct {
	shown int64
	// below is since when there have been fewer pods than shown, zero if there are not.
	// highest is the highest number since then.
	below   time.Time
	highest int64
	// had is how many pods there were when there were last no fewer than shown, and stopped how many
	// the provider had stopped by then.
	had, stopped int64
}

// newScale is a scale that goes on with a number that was published before. The provider has
// stopped so many pods until now.
func newScale(published, stopped int64) scale {
	return scale{shown: published, had: published, stopped: stopped}
}

// look takes in how many pods there should be now and how many the provider has stopped since it
// started, and returns the number to publish. It rises at once. It falls to the highest number of
// the last scaleHold. While the function is short of pods, those that it lost count: they have no
// room or fail, and are still wanted. Those that the provider stopped are not.
func (s *scale) look(now time.Time, pods, stopped int64, short bool) int64 {
	wanted := pods
	if short {
		wanted = max(pods, min(s.shown, s.had-max(0, stopped-s.stopped)))
	}
	if pods >= s.shown {
		s.had, s.stopped = pods, stopped
	}
	switch {
	case wanted >= s.shown:
		s.shown, s.below = wanted, time.Time{}
	case s.below.IsZero():
		s.below, s.highest = now, wanted
	default:
		s.highest = max(s.highest, wanted)
		if now.Sub(s.below) >= scaleHold {
			s.shown, s.below, s.highest = s.highest, now, wanted
		}
	}
	return s.shown
}

// published is what this replica publishes of the object with the UID of.
type published struct {
	scale
	of types.UID
	// recount is when the budgets are calculated once more, zero for never again. unmarked: the
	// last attempt to have them calculated failed.
	recount  time.Time
	unmarked bool
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
	if _, scaled := f.Scaled(); !served || scaled || w.noScaleAt(w.now()) {
		return 0, false
	}
	key := f.Namespace + "/" + f.Name
	p := w.scales[key]
	if p == nil || p.of != f.UID {
		p = &published{scale: newScale(max(0, f.Published()), int64(runs.Stopped)), of: f.UID, recount: w.now().Add(settleTime)}
		w.scales[key] = p
	}
	n = p.look(w.now(), int64(max(runs.Pods, runs.Replicas)), int64(runs.Stopped), runs.Short)
	return n, n != f.Counted()
}

// noScaleAt reports whether nothing is published at now.
func (w *watcher) noScaleAt(now time.Time) bool {
	until := w.noScale.Load()
	return until != nil && now.Before(*until)
}

// due reports whether budgets must be calculated now without a new number.
func (p *published) due(now time.Time) bool {
	return p != nil && (p.unmarked || !p.recount.IsZero() && !now.Before(p.recount))
}

// publish writes a changed number of a function's pods, or makes Kubernetes calculate budgets
// without one. A failure to do so is made good at the next look. p is what is published of f.
func (w *watcher) publish(ctx context.Context, f *v1alpha1.Function, p *published, n int64, changed bool) error {
	if changed {
		err := w.writeCount(ctx, f, n)
		p.unmarked = p.unmarked || err != nil
		return err
	}
	now := w.now()
	// The object has the same version as before, and the mark must be another one.
	err := w.recount(ctx, f, f.ResourceVersion+"."+strconv.FormatInt(now.Unix(), 10))
	p.unmarked = err != nil
	if err == nil && !now.Before(p.recount) {
		p.recount = time.Time{}
	}
	return err
}

// writeCount writes the number of a function's pods, and makes Kubernetes calculate the
// budgets again. It returns nil if the function has changed meanwhile: the next look sees it.
func (w *watcher) writeCount(ctx context.Context, f *v1alpha1.Function, n int64) error {
	written, err := w.merge(ctx, f, managerLeader, map[string]any{v1alpha1.InstancesAnnotation: strconv.FormatInt(n, 10)}, map[string]any{"instances": n})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("function %s.%s: %w", f.Name, f.Namespace, err)
	case written.Counted() != n:
		now := w.now()
		until, paused := now.Add(noScalePause), w.noScaleAt(now)
		if w.noScale.Store(&until); !paused {
			w.log.Warn().Msg("PodDisruptionBudgets of models do not work: the definition of functions is older than the provider; apply its yaml/crd.yaml")
		}
		return nil
	}
	return w.recount(ctx, written, written.ResourceVersion)
}

// recount makes Kubernetes calculate a function's budgets with the number that its object has. It
// leaves a mark on a pod, which must be one that no pod had before.
func (w *watcher) recount(ctx context.Context, f *v1alpha1.Function, mark string) error {
	if w.Recount == nil {
		return nil
	}
	// A missing right was logged at the start.
	if err := w.Recount(ctx, provider.FullName(f.Name, f.Namespace), mark); err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("function %s.%s: budgets count a changed number of pods only later: %w", f.Name, f.Namespace, err)
	}
	return nil
}

// restore writes the function's number of pods again, after somebody else has replaced it. It
// makes a number that came through the scale subresource the function's replicas. The watch
// brings the change back.
func (w *watcher) restore(ctx context.Context, f *v1alpha1.Function) (again bool) {
	pods := f.Published()
	n, scaled := f.Scaled()
	switch {
	case pods >= 0:
	case scaled:
		pods = n
	default:
		runs, _ := w.Status(provider.FullName(f.Name, f.Namespace))
		pods = int64(max(runs.Pods, runs.Replicas))
	}
	spec := map[string]any{"instances": pods}
	if scaled {
		spec["replicas"] = n
	}
	written, err := w.merge(ctx, f, managerLeader, map[string]any{v1alpha1.InstancesAnnotation: strconv.FormatInt(pods, 10)}, spec)
	if err == nil {
		err = w.recount(ctx, written, written.ResourceVersion)
	}
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		w.log.Error().Str("function", f.Name+"."+f.Namespace).Err(err).Msg("a function's number of pods could not be restored; the provider tries again")
	}
	return err != nil
}
