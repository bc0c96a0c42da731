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

// record is what a function's object says, as a store has it, with what its image
// brings along. Its hash is that of both, its revision the one that was last given. The
// error is what is wrong with the spec; the record is then good for showing it only.
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

// replicas is how many instances to keep: what the spec says within the deployment's
// bounds (0 is always one), or else the least. most is 0 if there is no bound.
func replicas(stated *int64, least, most uint64) uint64 {
	n := least
	if stated != nil {
		n = uint64(*stated)
	}
	if n == 0 {
		return 0
	}
	return min(max(n, least), cmp.Or(most, annotation.MaxReplicas))
}

// accepted is what was accepted last of a function, as its object remembers it; false
// if it does not, or not what could run.
func (s *Objects) accepted(f *v1alpha1.Function) (store.Function, bool) {
	was := f.Status.Deployed
	if was == nil {
		return store.Function{}, false
	}
	old := v1alpha1.Function{ObjectMeta: f.ObjectMeta, Spec: was.Spec}
	old.Annotations = map[string]string{
		v1alpha1.RevisionAnnotation: strconv.FormatUint(was.Revision, 10),
		v1alpha1.DeployedAnnotation: f.Annotations[v1alpha1.DeployedAnnotation],
	}
	r, err := s.record(&old)
	return r, err == nil && r.Revision > 0
}

// stamped reports whether the revision that a function has is that of its spec.
func stamped(f *v1alpha1.Function, r store.Function) bool {
	return r.Revision > 0 && f.Annotations[v1alpha1.HashAnnotation] == r.Hash
}

// revisionOf is the revision in a function's annotations, 0 if there is none that can
// be believed: one that somebody has written by hand could leave no room above.
func (s *Objects) revisionOf(f *v1alpha1.Function) uint64 {
	n, err := strconv.ParseUint(f.Annotations[v1alpha1.RevisionAnnotation], 10, 64)
	if err != nil || !s.believed(n) {
		return 0
	}
	return n
}

// believed reports whether a revision is not from the far future.
func (s *Objects) believed(n uint64) bool { return n <= uint64(s.now().Add(skew).UnixMicro()) }

// skew is how far replicas' clocks may be apart.
const skew = 48 * time.Hour

// stamp is what a revision of a deployment writes into its object's annotations;
// carried is what its image brings along that is not in its spec.
func stamp(revision uint64, hash string, at time.Time, carried string) map[string]any {
	return map[string]any{
		v1alpha1.ImageAnnotation:    carried,
		v1alpha1.RevisionAnnotation: strconv.FormatUint(revision, 10),
		v1alpha1.HashAnnotation:     hash,
		v1alpha1.DeployedAnnotation: at.UTC().Format(time.RFC3339Nano),
	}
}

// apart takes "name.namespace" apart.
func apart(full string) (namespace, name string) {
	name, namespace, found := strings.Cut(full, ".")
	if !found {
		namespace = provider.DefaultNamespace
	}
	return namespace, name
}
