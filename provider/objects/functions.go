package objects

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// maxTries is how often a write is tried that conflicts with another client's write. The
// leader's writes of the status cause such conflicts.
const maxTries = 16

// NextRevision returns a number above all that this replica has given or seen: the time
// in microseconds since 1970, unless one of those is higher.
func (s *Objects) NextRevision() (uint64, error) {
	return s.above(uint64(s.now().UnixMicro()) - 1), nil
}

// above raises the last revision above n and returns it.
func (s *Objects) above(n uint64) uint64 {
	for {
		last := s.last.Load()
		next := max(last, n) + 1
		if s.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

// seen notes a revision: all later ones from above are higher.
func (s *Objects) seen(n uint64) {
	for {
		last := s.last.Load()
		if last >= n || s.last.CompareAndSwap(last, n) {
			return
		}
	}
}

// PutFunction writes f and replaces an earlier object by server-side apply: the provider
// then owns all fields of the spec. 409 if another replica has deployed a later revision
// meanwhile. The number of instances follows from the object that it replaces, which another
// replica may have scaled a moment ago; the watch brings it back.
func (s *Objects) PutFunction(f store.Function) error {
	namespace, name := f.Deployment.Namespace, f.Deployment.Service
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	before, known := s.cached(namespace, name)
	for range maxTries {
		if known && s.revisionOf(before) > f.Revision {
			return web.Refuse(http.StatusConflict, "another client deployed function %s at the same time; deploy it again to replace that deployment", name)
		}
		var written *v1alpha1.Function
		var err error
		switch {
		case known:
			f.Replicas = s.replicasAfter(before, f)
			written, err = s.put(ctx, before, f)
		case f.Promoted:
			return web.Refuse(http.StatusConflict, "another client removed function %s meanwhile", name)
		default:
			written, err = s.create(ctx, f)
		}
		if err == nil {
			s.wrote(written)
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return refused(err, namespace, name)
		}
		before, err = s.typed.Functions(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return problemFrom(err, "function %s was not stored", name)
		}
		known = err == nil
	}
	return busy(name)
}

// put makes the object before one of f, if that has not changed meanwhile. If a promoted deployment comes from the
// object's own spec, the spec stays its owner's, and only gets its revision.
func (s *Objects) put(ctx context.Context, before *v1alpha1.Function, f store.Function) (*v1alpha1.Function, error) {
	if !f.Promoted {
		return s.replace(ctx, before, f)
	}
	r, err := s.record(before)
	if err == nil && stamped(before, r) {
		return s.replace(ctx, before, f)
	}
	if carried, same := carriedBy(before, f); same {
		return s.merge(ctx, before, managerLeader, stamp(f.Revision, hash(f), f.UpdatedAt, carried), nil)
	}
	if acceptedReason(before) == reasonRolledBack {
		return s.replace(ctx, before, f) // The object's own spec has been tried.
	}
	return nil, web.Refuse(http.StatusConflict, "another client changed function %s meanwhile", f.Deployment.Service)
}

// carriedBy reports whether an object's spec is f's deployment but for annotations of its image. It returns these as
// [v1alpha1.ImageAnnotation].
func carriedBy(object *v1alpha1.Function, f store.Function) (carried string, same bool) {
	d := object.Spec.Deployment(object.Name, object.Namespace)
	var whole map[string]string
	if f.Deployment.Annotations != nil {
		whole = *f.Deployment.Annotations
	}
	_, added, err := provider.Complete(&d, whole)
	return v1alpha1.Carried(added), err == nil && store.Hash(d) == hash(f)
}

// busy refuses a change of a function that other clients have changed maxTries times meanwhile.
func busy(name string) error {
	return web.Refuse(http.StatusConflict, "function %s is being changed by other clients; try again", name)
}

// wrote notes the version that this replica has written of a function.
func (s *Objects) wrote(f *v1alpha1.Function) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written[f.Namespace+"/"+f.Name] = v1alpha1.ObjectVersion(f)
}

// PutReplicas writes the number of a function's instances and nothing else, over any deployment
// that the object has. The minimum of that deployment needs no number: a later change of the
// minimum then counts. store.ErrAbsent if there is no such function.
func (s *Objects) PutReplicas(namespace, name string, n uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for range maxTries {
		before, err := s.typed.Functions(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			before, err = s.merge(ctx, before, v1alpha1.ManagedBy, nil, map[string]any{"replicas": s.statedAlone(before, n)})
		}
		switch {
		case err == nil:
			s.wrote(before)
			return nil
		case apierrors.IsNotFound(err):
			return fmt.Errorf("function %s: %w", name, store.ErrAbsent)
		case !apierrors.IsConflict(err):
			return problemFrom(err, "the number of instances of function %s was not stored", name)
		}
	}
	return busy(name)
}

// statedAlone returns the spec's replicas for a number of instances: nil if it is the minimum of
// the deployment in f.
func (s *Objects) statedAlone(f *v1alpha1.Function, n uint64) *int64 {
	if r, err := s.record(unscaled(f)); err == nil && r.Replicas == n {
		return nil
	}
	stated := int64(n)
	return &stated
}

// unscaled returns a copy of f with the number of instances that its deployment's minimum gives.
func unscaled(f *v1alpha1.Function) *v1alpha1.Function {
	bare := *f
	bare.Spec.Replicas = nil
	return &bare
}

// replicasAfter returns how many instances to keep after f replaces before.
func (s *Objects) replicasAfter(before *v1alpha1.Function, f store.Function) uint64 {
	was, err := s.record(before)
	if err != nil {
		return f.Replicas
	}
	least, err := s.record(unscaled(before))
	if err != nil {
		return f.Replicas
	}
	in, err := annotation.ParseStored(f.Deployment)
	if err != nil {
		return f.Replicas
	}
	return provider.ReplicasAfter(in, was.Replicas, least.Replicas)
}

// refused returns the reason why a function was not written.
func refused(err error, namespace, name string) error {
	if apierrors.IsNotFound(err) {
		return web.Refuse(http.StatusBadRequest, "there is no namespace %q in the cluster; create it with: kubectl create namespace %s", namespace, namespace)
	}
	return problemFrom(err, "function %s was not stored", name)
}

// create writes a new function's object.
func (s *Objects) create(ctx context.Context, f store.Function) (*v1alpha1.Function, error) {
	d := f.Deployment
	object := &v1alpha1.Function{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: d.Service, Namespace: d.Namespace, Annotations: map[string]string{}},
		Spec:       v1alpha1.SpecOf(d),
	}
	for key, value := range stamp(f.Revision, hash(f), f.UpdatedAt, "") {
		object.Annotations[key] = fmt.Sprint(value)
	}
	if stated := s.stated(nil, f); stated != nil {
		object.Spec.Replicas = stated
	}
	return s.typed.Functions(d.Namespace).Create(ctx, object, metav1.CreateOptions{FieldManager: v1alpha1.ManagedBy})
}

// replace writes a function over the object before, if that has not changed meanwhile.
func (s *Objects) replace(ctx context.Context, before *v1alpha1.Function, f store.Function) (*v1alpha1.Function, error) {
	text, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.Kind,
		"metadata": map[string]any{"name": before.Name, "namespace": before.Namespace, "uid": before.UID,
			"resourceVersion": before.ResourceVersion, "annotations": stamp(f.Revision, hash(f), f.UpdatedAt, "")},
		"spec": whole(v1alpha1.SpecOf(f.Deployment), s.stated(before, f)),
	})
	if err != nil {
		return nil, err
	}
	force := true
	return s.typed.Functions(before.Namespace).Patch(ctx, before.Name, types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: v1alpha1.ManagedBy, Force: &force})
}

// whole returns a spec with all its fields, even empty ones. A field that is left out
// would keep the value that another client has set.
func whole(s v1alpha1.FunctionSpec, replicas *int64) map[string]any {
	spec := map[string]any{
		"image": s.Image, "process": s.Process, "readOnlyRootFilesystem": s.ReadOnlyRootFilesystem,
		"environment": mapping(s.Environment), "labels": mapping(s.Labels), "annotations": mapping(s.Annotations),
		"constraints": list(s.Constraints), "secrets": list(s.Secrets),
		"limits": cmp.Or(s.Limits, &v1alpha1.Resources{}), "requests": cmp.Or(s.Requests, &v1alpha1.Resources{}),
	}
	if replicas != nil {
		spec["replicas"] = *replicas
	}
	return spec
}

// mapping returns m, or an empty map for nil.
func mapping(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// list returns s, or an empty list for nil.
func list(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// hash returns the hash of the deployment as the object will hold it, without empty
// fields.
func hash(f store.Function) string {
	d := f.Deployment
	return store.Hash(v1alpha1.SpecOf(d).Deployment(d.Service, d.Namespace))
}

// stated returns the spec's replicas. It returns nil as long as f has the number that
// follows from its deployment's minimum: a change of the minimum with kubectl then counts.
func (s *Objects) stated(before *v1alpha1.Function, f store.Function) *int64 {
	n := int64(f.Replicas)
	if before == nil || before.Spec.Replicas == nil {
		bare := v1alpha1.Function{Spec: v1alpha1.SpecOf(f.Deployment)}
		bare.Name, bare.Namespace = f.Deployment.Service, f.Deployment.Namespace
		if r, err := s.record(&bare); err == nil && r.Replicas == f.Replicas {
			return nil
		}
	}
	return &n
}

// DeleteFunction deletes a function with everything that it owns; store.ErrAbsent if
// there is none. It asks the API server.
func (s *Objects) DeleteFunction(namespace, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found, err := s.typed.Functions(namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		background := metav1.DeletePropagationBackground
		err = s.typed.Functions(namespace).Delete(ctx, name, metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(found.UID)), PropagationPolicy: &background})
	}
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("function %s: %w", name, store.ErrAbsent)
	}
	if err != nil {
		return problemFrom(err, "function %s was not deleted", name)
	}
	if _, still := s.cached(namespace, name); still {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.deleted[namespace+"/"+name] = found.UID
	}
	return nil
}

// Function returns one function's present record, store.ErrAbsent if there is none. If
// the spec is invalid, or the leader has not given it a revision yet, Function returns
// the deployment accepted last, or an error if there is none. It asks the API server.
func (s *Objects) Function(namespace, name string) (store.Function, error) {
	if !annotation.IsName(namespace) || !annotation.IsName(name) {
		return store.Function{}, fmt.Errorf("function %.80q: %w", name, store.ErrAbsent)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	f, err := s.typed.Functions(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && f.DeletionTimestamp != nil:
		return store.Function{}, fmt.Errorf("function %s: %w", name, store.ErrAbsent)
	case err != nil:
		return store.Function{}, problemFrom(err, "function %s could not be read", name)
	}
	if allowed, err := s.AllowedNow(namespace); err != nil {
		return store.Function{}, err
	} else if !allowed {
		return store.Function{}, fmt.Errorf("function %s: namespace %s: %w", name, namespace, store.ErrAbsent)
	}
	r, err := s.record(f)
	if err == nil && stamped(f, r) {
		return r, nil
	}
	// If another replica has deployed a newer revision, the object's status may still
	// have the one before, which must not be returned.
	if was, ok := s.accepted(f); ok && was.Revision == s.revisionOf(f) {
		return was, nil
	}
	if err == nil {
		err = fmt.Errorf("function %s has just been changed: %w", name, store.ErrAbsent)
	}
	return r, err
}

// Functions lists a namespace's functions, sorted by name. With namespace "", it lists
// all functions, sorted by namespace and name. A function whose spec is invalid, or has no
// revision yet, has the deployment accepted last. If none was accepted, a function with
// an invalid spec is in the list, because its invocations must say what is wrong. One
// without a revision is not in the list; Watch reports it later.
func (s *Objects) Functions(namespace string) ([]store.Function, error) {
	out := []store.Function{}
	for _, f := range s.all() {
		if namespace != "" && f.Namespace != namespace || !s.served(f) {
			continue
		}
		r, err := s.record(f)
		good := err == nil && stamped(f, r)
		if was, ok := s.accepted(f); !good && ok {
			r, good = was, true
		}
		if good || err != nil {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b store.Function) int {
		return cmp.Or(cmp.Compare(a.Deployment.Namespace, b.Deployment.Namespace), cmp.Compare(a.Deployment.Service, b.Deployment.Service))
	})
	return out, nil
}

// Accepted returns a function's deployment accepted last, and false if it is not known.
// It reads the cache.
func (s *Objects) Accepted(namespace, name string) (store.Function, bool) {
	f, ok := s.cached(namespace, name)
	if !ok {
		return store.Function{}, false
	}
	return s.accepted(f)
}

// Refused returns the reason why a function's latest deployment was refused, "" if it was
// accepted or the leader has not reported yet. It reads the cache.
func (s *Objects) Refused(namespace, name string) string {
	f, ok := s.cached(namespace, name)
	if !ok {
		return ""
	}
	c := meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionAccepted)
	if c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration != f.Generation {
		return ""
	}
	return c.Message
}

// served reports whether an object's function should run.
func (s *Objects) served(f *v1alpha1.Function) bool {
	return f.DeletionTimestamp == nil && s.Allowed(f.Namespace)
}
