package objects

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/store"
)

// record returns a function's object as a store's record, completed with the annotations
// of its image. The hash covers both. The revision is the last one given, which may belong
// to an earlier spec. If the spec is invalid, record returns the reason, and the record is
// only good for display.
func (s *Objects) record(f *v1alpha1.Function) (store.Function, error) {
	d := f.Spec.Deployment(f.Name, f.Namespace)
	in, _, err := provider.Complete(&d, f.Brought())
	r := store.Function{Deployment: d, CreatedAt: f.CreationTimestamp.UTC(), UpdatedAt: f.CreationTimestamp.UTC(),
		Revision: s.revisionOf(f), Hash: store.Hash(d)}
	if at, err := time.Parse(time.RFC3339Nano, f.Annotations[v1alpha1.DeployedAnnotation]); err == nil {
		r.UpdatedAt = at.UTC()
	}
	if err != nil {
		return r, err
	}
	if err := checkReplicas(f.Spec.Replicas); err != nil {
		return r, err
	}
	r.Replicas = replicas(f.Spec.Replicas, uint64(in.MinReplicas), uint64(in.MaxReplicas))
	return r, nil
}

func checkReplicas(stated *int64) error {
	if stated != nil && *stated < 0 {
		return fmt.Errorf("spec.replicas is %d: it must be 0 or more", *stated)
	}
	return nil
}

// replicas returns the number of instances to keep: the spec's number within the
// deployment's bounds, or the minimum if the spec has none. 0 is always allowed. maximum
// is 0 if there is no upper bound.
func replicas(stated *int64, minimum, maximum uint64) uint64 {
	n := minimum
	if stated != nil {
		n = uint64(*stated)
	}
	if n == 0 {
		return 0
	}
	return min(max(n, minimum), cmp.Or(maximum, annotation.MaxReplicas))
}

// accepted returns the deployment accepted last, from the status of the function's
// object, with the number of instances that the object has now: that belongs to no deployment. It
// returns false if the status has none, or one that is not valid any more.
func (s *Objects) accepted(f *v1alpha1.Function) (store.Function, bool) {
	was := f.Status.Deployed
	if was == nil {
		return store.Function{}, false
	}
	old := v1alpha1.Function{ObjectMeta: f.ObjectMeta, Spec: was.Spec.FunctionSpec}
	if checkReplicas(f.Spec.Replicas) == nil {
		old.Spec.Replicas = f.Spec.Replicas
	}
	old.Annotations = map[string]string{
		v1alpha1.RevisionAnnotation: strconv.FormatUint(was.Revision, 10),
		v1alpha1.DeployedAnnotation: f.Annotations[v1alpha1.DeployedAnnotation],
	}
	r, err := s.record(&old)
	return r, err == nil && r.Revision > 0
}

// stamped reports whether a function's revision belongs to its present spec.
func stamped(f *v1alpha1.Function, r store.Function) bool {
	return r.Revision > 0 && f.Annotations[v1alpha1.HashAnnotation] == r.Hash
}

// revisionOf returns the revision in a function's annotations, 0 if it is absent or not
// plausible. A user could write a revision so high that none is left above it.
func (s *Objects) revisionOf(f *v1alpha1.Function) uint64 {
	n, err := strconv.ParseUint(f.Annotations[v1alpha1.RevisionAnnotation], 10, 64)
	if err != nil || !s.plausible(n) {
		return 0
	}
	return n
}

// plausible reports whether a revision is not further in the future than skew.
func (s *Objects) plausible(n uint64) bool { return n <= uint64(s.now().Add(skew).UnixMicro()) }

// skew is how far replicas' clocks may be apart.
const skew = 48 * time.Hour

// stamp returns the annotations that mark an object with the revision of its deployment.
// carried holds the image's annotations that are not in the spec.
func stamp(revision uint64, hash string, at time.Time, carried string) map[string]any {
	return map[string]any{
		v1alpha1.ImageAnnotation:    carried,
		v1alpha1.RevisionAnnotation: strconv.FormatUint(revision, 10),
		v1alpha1.HashAnnotation:     hash,
		v1alpha1.DeployedAnnotation: at.UTC().Format(time.RFC3339Nano),
	}
}

// splitName splits "name.namespace".
func splitName(full string) (namespace, name string) {
	name, namespace, found := strings.Cut(full, ".")
	if !found {
		namespace = provider.DefaultNamespace
	}
	return namespace, name
}
