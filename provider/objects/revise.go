package objects

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/store"
)

// revise reads what others have made of a function, with what its image brings along,
// and gives it a revision, unless it has that of just this; it comes again with it. What
// cannot be gets none. Into an image that could not be read it looks again.
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
		w.came(key, outcome{Generation: f.Generation, Reason: "Invalid", Why: err.Error()})
		return unread != nil || len(added) > 0 // An image may be mended under the same name.
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
		w.log.Warn().Str("function", f.Name+"."+f.Namespace).Err(unread).Msg("what annotations the image brings along could not be read; it is tried again")
	}
	revision, err := w.NextRevision()
	if err != nil {
		return true
	}
	return w.stamp(ctx, f, stamp(revision, hash, w.now(), carried))
}

// stamp writes a function's annotations. Whoever changes the function at the same time
// comes first: it is then looked at again.
func (w *watcher) stamp(ctx context.Context, f *v1alpha1.Function, annotations map[string]any) (again bool) {
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": f.UID, "resourceVersion": f.ResourceVersion, "annotations": annotations}})
	if err != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err = w.typed.Functions(f.Namespace).Patch(ctx, f.Name, mergePatch, text, metav1.PatchOptions{FieldManager: managerLeader})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		w.log.Error().Str("function", f.Name+"."+f.Namespace).Err(err).Msg("give a changed function its revision")
	}
	return err != nil
}
