package objects

import (
	"context"
	"encoding/json"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/store"
)

// revise gives a revision to a spec that kubectl has changed, after it has read the
// annotations of its image. The change comes back through the watch with its revision. It
// gives none to a spec that has one already, nor to an invalid one. again says to try
// again, for example because the image could not be read.
func (w *watcher) revise(ctx context.Context, key string, f *v1alpha1.Function, r store.Function) (again bool) {
	d := f.Spec.Deployment(f.Name, f.Namespace)
	brought, unread := w.Defaults.Of(ctx, d)
	if ctx.Err() != nil {
		return false
	}
	_, added, err := provider.Complete(&d, brought)
	if err == nil {
		err = checkReplicas(f.Spec.Replicas)
	}
	if err != nil {
		w.setOutcome(key, outcome{Generation: f.Generation, Reason: "Invalid", Why: err.Error()})
		return unread != nil || len(added) > 0 // The image may be fixed under the same name.
	}
	carried, hash := v1alpha1.Carried(added), store.Hash(d)
	if unread != nil {
		carried = v1alpha1.Unread
	}
	if stamped(f, r) && r.Hash == hash {
		if unread != nil {
			return true
		}
		return w.stamp(ctx, f, stamp(r.Revision, hash, r.UpdatedAt, carried))
	}
	if unread != nil {
		w.log.Warn().Str("function", f.Name+"."+f.Namespace).Err(unread).Msg("the image's annotations could not be read; the provider tries again")
	}
	if w.RollOut != nil {
		w.mu.Lock()
		came := w.outcomes[key]
		w.mu.Unlock()
		if came.Reason == reasonDownloading && scaleAccepted(ctx, w, f) { // The next look takes seconds.
			return true
		}

		gradual, err := w.RollOut(ctx, d)
		if gradual {
			return w.rollsOut(ctx, key, f, r, err)
		}
	}
	revision, err := w.NextRevision()
	if err != nil {
		return true
	}
	again = w.stamp(ctx, f, stamp(revision, hash, w.now(), carried))
	if !again {
		kind := decisions.Deploy
		if r.Revision > 0 {
			kind = decisions.Update
		}
		w.Decisions.Add(w.now(), provider.FullName(f.Name, f.Namespace), kind, decisions.Fields{Image: d.Image, Revision: revision, Previous: r.Revision})
		noteRevision(key, w, f, store.Revision{Revision: revision, At: w.now().UTC(), Deployment: d, How: "deployed"})
	}
	return again
}

// noteRevision notes a revision of kubectl's, and the one before, for [remember].
func noteRevision(key string, w *watcher, f *v1alpha1.Function, now store.Revision) {
	all := []store.Revision{now}
	if was, ok := w.accepted(f); ok {
		all = []store.Revision{{Revision: was.Revision, At: was.UpdatedAt, Deployment: was.Deployment, How: now.How}, now}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unkept[key] = all
}

// remember adds an adopted revision to those that can be deployed again if it is kubectl's. The replica that
// deploys others remembers them.
func remember(ctx context.Context, w *watcher, key string, f *v1alpha1.Function, revision uint64) {
	w.mu.Lock()
	all := w.unkept[key]
	mine := len(all) > 0 && all[len(all)-1].Revision == revision
	if mine {
		delete(w.unkept, key)
	}
	w.mu.Unlock()
	if !mine {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := (Revisions{w.Objects}).addRevisions(ctx, f, all); err != nil {
		w.log.Error().Str("function", f.Name+"."+f.Namespace).Err(err).Msg("the history of a function's revisions was not stored")
	}
}

// rollsOut notes that a spec is rolled out gradually, or why it is not. The deployment accepted last goes on serving.
// The spec gets its revision when it takes over.
func (w *watcher) rollsOut(ctx context.Context, key string, f *v1alpha1.Function, r store.Function, err error) (again bool) {
	o := outcome{Generation: f.Generation, Reason: reasonRollingOut}
	tried, still := new(provider.RolledBack), new(provider.DownloadingError)
	switch {
	case errors.Is(err, provider.ErrArriving):
		return true
	case errors.As(err, &still):
		o.Reason, o.Why = reasonDownloading, err.Error()
		w.queue.AddAfter(key, downloadLook)
	case errors.As(err, &tried):
		if takeBack(ctx, w, key, f, r.Revision) != nil {
			return true
		}
		o.Reason, o.Why = reasonRolledBack, err.Error()
	case err != nil:
		o.Reason, o.Why, again = reasonRefused, err.Error(), true // It may be accepted later.
	}
	again = scaleAccepted(ctx, w, f) || again
	w.setOutcome(key, o)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch o.Reason {
	case reasonRollingOut:
		w.rolling[key] = true
	case reasonRolledBack:
		delete(w.rolling, key)
	}
	return again
}

// scaleAccepted gives the deployment accepted last, which serves while the object's spec is rolled out gradually, the number
// of instances that the object has.
func scaleAccepted(ctx context.Context, w *watcher, f *v1alpha1.Function) (again bool) {
	was, ok := w.accepted(f)
	if !ok || was.Revision != w.revisionOf(f) {
		return false // Another replica has deployed one since, which the watch brings.
	}
	err := w.Target.Adopt(ctx, was)
	if err != nil && ctx.Err() == nil {
		w.log.Warn().Str("function", f.Name+"."+f.Namespace).Err(err).Msg("the function was not scaled; it is tried again")
	}
	return err != nil
}

// takeBack ends the rollout of an earlier spec of an object that has another one by now, which is not rolled out. A rollout
// that faas-cli began goes on: the object never had its spec.
func takeBack(ctx context.Context, w *watcher, key string, f *v1alpha1.Function, present uint64) error {
	w.mu.Lock()
	came, rolling := w.outcomes[key], w.rolling[key]
	w.mu.Unlock()
	if w.TakeBack == nil || !rolledOutEarlier(came, rolling, f) {
		return nil
	}
	return w.TakeBack(ctx, f.Namespace, f.Name, present)
}

// rolledOutEarlier reports whether the rollout of an earlier spec of f began last: as this replica knows, or as the leader
// before it has written. Specs since may have been refused.
func rolledOutEarlier(came outcome, rolling bool, f *v1alpha1.Function) bool {
	c := meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionAccepted)
	if c != nil && c.ObservedGeneration > came.Generation {
		came.Generation, rolling = c.ObservedGeneration, c.Reason == reasonRollingOut
	}
	return rolling && came.Generation < f.Generation
}

// stamp writes a function's annotations. If another client has changed the function
// meanwhile, stamp writes nothing and returns true, to try again.
func (w *watcher) stamp(ctx context.Context, f *v1alpha1.Function, annotations map[string]any) (again bool) {
	_, err := w.merge(ctx, f, managerLeader, annotations, nil)
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		w.log.Error().Str("function", f.Name+"."+f.Namespace).Err(err).Msg("a changed function's revision could not be written; the provider tries again")
	}
	return err != nil
}

// merge writes annotations and fields of a function's spec, which owner owns then, and returns the new
// object. It returns a conflict if another client has changed the function since f was read.
func (s *Objects) merge(ctx context.Context, f *v1alpha1.Function, owner string, annotations, spec map[string]any) (*v1alpha1.Function, error) {
	metadata := map[string]any{"uid": f.UID, "resourceVersion": f.ResourceVersion}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	change := map[string]any{"metadata": metadata}
	if spec != nil {
		change["spec"] = spec
	}
	text, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.typed.Functions(f.Namespace).Patch(ctx, f.Name, types.MergePatchType, text, metav1.PatchOptions{FieldManager: owner})
}
