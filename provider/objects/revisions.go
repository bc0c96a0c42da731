package objects

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/store"
)

// keptRevisions is the number of ControllerRevisions that a function keeps.
const keptRevisions = 10

// Revisions remembers the revisions of functions: a [provider.RevisionStore].
type Revisions struct{ Objects *Objects }

var _ provider.RevisionStore = Revisions{}

// Rollouts returns the latest revisions of a function, which are ControllerRevisions that its object owns, and how its
// latest gradual rollout ended, which an annotation of the object says. It asks the API server.
func (r Revisions) Rollouts(namespace, name string) (h store.Rollouts, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	f, err := r.Objects.typed.Functions(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return h, nil
	}
	if err != nil {
		return h, problemFrom(err, "the revisions of function %s could not be read", name)
	}
	kept, err := r.revisionsOf(ctx, f)
	if err != nil {
		return h, problemFrom(err, "the revisions of function %s could not be read", name)
	}
	for _, k := range kept {
		var of store.Revision
		if json.Unmarshal(k.Data.Raw, &of) == nil { // Otherwise somebody has made it by hand.
			h.Revisions = append(h.Revisions, of)
		}
	}
	h.Last = lastRollout(f)
	return h, nil
}

// revisionsOf lists the ControllerRevisions of a function, the newest last.
func (r Revisions) revisionsOf(ctx context.Context, f *v1alpha1.Function) ([]appsv1.ControllerRevision, error) {
	list, err := r.Objects.client.AppsV1().ControllerRevisions(f.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: v1alpha1.PodSelector(f.Name)})
	if err != nil {
		return nil, err
	}
	kept := slices.DeleteFunc(list.Items, func(k appsv1.ControllerRevision) bool { return !metav1.IsControlledBy(&k, f) })
	slices.SortFunc(kept, func(a, b appsv1.ControllerRevision) int { return cmp.Compare(a.Revision, b.Revision) })
	return kept, nil
}

// lastRollout returns how the latest gradual rollout ended that an object tells of, nil for none.
func lastRollout(f *v1alpha1.Function) *store.RolloutEnd {
	var end store.RolloutEnd
	text := f.Annotations[v1alpha1.RolloutAnnotation]
	if text == "" || json.Unmarshal([]byte(text), &end) != nil { // Somebody has edited it by hand.
		return nil
	}
	return &end
}

// LastRollout returns how the latest gradual rollout of a function ended, nil if none has. It reads the cache.
func (r Revisions) LastRollout(namespace, name string) *store.RolloutEnd {
	f, ok := r.Objects.cached(namespace, name)
	if !ok {
		return nil
	}
	return lastRollout(f)
}

// PutRollouts adds what h has more than the cluster, and keeps the latest revisions. Another replica may have added
// revisions meanwhile, which stay.
func (r Revisions) PutRollouts(namespace, name string, h store.Rollouts) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	f, err := r.Objects.typed.Functions(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil // It has been deleted meanwhile.
	}
	if err != nil {
		return problemFrom(err, "the revisions of function %s were not stored", name)
	}
	if err := r.addRevisions(ctx, f, h.Revisions); err != nil {
		return problemFrom(err, "the revisions of function %s were not stored", name)
	}
	return r.putLast(ctx, f, h.Last)
}

// addRevisions creates the ControllerRevisions that are not there, and deletes the oldest of too many.
func (r Revisions) addRevisions(ctx context.Context, f *v1alpha1.Function, all []store.Revision) error {
	kept, err := r.revisionsOf(ctx, f)
	if err != nil {
		return err
	}
	client := r.Objects.client.AppsV1().ControllerRevisions(f.Namespace)
	for _, one := range all {
		known := slices.ContainsFunc(kept, func(k appsv1.ControllerRevision) bool { return k.Revision == int64(one.Revision) })
		if known || len(kept) >= keptRevisions && int64(one.Revision) < kept[0].Revision {
			continue
		}
		made, err := revisionObject(f, one)
		if err != nil {
			return err
		}
		made, err = client.Create(ctx, made, metav1.CreateOptions{FieldManager: v1alpha1.ManagedBy})
		if apierrors.IsAlreadyExists(err) {
			continue // Another replica was earlier.
		}
		if err != nil {
			return err
		}
		kept = append(kept, *made)
	}
	for _, old := range kept[:max(0, len(kept)-keptRevisions)] {
		if err := client.Delete(ctx, old.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// revisionObject returns a revision as an object that goes with its function.
func revisionObject(f *v1alpha1.Function, r store.Revision) (*appsv1.ControllerRevision, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode revision %d: %w", r.Revision, err)
	}
	owner := metav1.NewControllerRef(f, v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	owner.BlockOwnerDeletion = nil // It needs a further right.
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: f.Name + "-" + strconv.FormatUint(r.Revision, 10), Namespace: f.Namespace,
			Labels:          map[string]string{v1alpha1.FunctionLabel: f.Name, v1alpha1.ManagedByLabel: v1alpha1.ManagedBy},
			OwnerReferences: []metav1.OwnerReference{*owner},
		},
		Data: runtime.RawExtension{Raw: text}, Revision: int64(r.Revision),
	}, nil
}

// putLast writes how the latest gradual rollout ended, unless the object tells of a later one.
func (r Revisions) putLast(ctx context.Context, f *v1alpha1.Function, end *store.RolloutEnd) error {
	if end == nil {
		return nil
	}
	written := *end
	written.Why = oneLine(end.Why)
	text, err := json.Marshal(written)
	if err != nil {
		return err
	}
	for range maxTries {
		if was := lastRollout(f); was != nil && supersedes(was, end) {
			return nil
		}
		changed, err := r.Objects.merge(ctx, f, v1alpha1.ManagedBy, map[string]any{v1alpha1.RolloutAnnotation: string(text)}, nil)
		if err == nil {
			r.Objects.wrote(changed)
			return nil
		}
		if !apierrors.IsConflict(err) {
			return problemFrom(err, "the end of the rollout of function %s was not stored", f.Name)
		}
		name, uid := f.Name, f.UID
		f, err = r.Objects.typed.Functions(f.Namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && f.UID != uid {
			return nil
		}
		if err != nil {
			return problemFrom(err, "the end of the rollout of function %s was not stored", name)
		}
	}
	return busy(f.Name)
}

// supersedes reports whether an object tells of an end that is later than another, which may have been read long ago.
// Revisions rise; the clocks of two replicas may differ. An end may have lost its hash since.
func supersedes(told, end *store.RolloutEnd) bool {
	if told.Revision != end.Revision {
		return told.Revision > end.Revision
	}
	return !told.At.Before(end.At) && (told.Hash == end.Hash || told.Hash == "")
}

// DeleteRollouts does nothing: what is remembered of a function is deleted with its object.
func (r Revisions) DeleteRollouts(string, string) error { return nil }

// forgetTried lets a deployment that was rolled back be tried again: the object says something else now.
func (r Revisions) forgetTried(ctx context.Context, f *v1alpha1.Function) error {
	end := lastRollout(f)
	if end == nil || end.Hash == "" || end.Promoted {
		return nil
	}
	end.Hash = ""
	text, err := json.Marshal(end)
	if err != nil {
		return err
	}
	_, err = r.Objects.merge(ctx, f, managerLeader, map[string]any{v1alpha1.RolloutAnnotation: string(text)}, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
