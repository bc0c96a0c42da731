package v1alpha1

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Published returns how many pods the provider has published last in the scale subresource,
// even if somebody has replaced the number since; -1 if it has published none.
func (f *Function) Published() int64 {
	n, err := strconv.ParseInt(f.Annotations[InstancesAnnotation], 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// Counted returns how many pods the function should have, as the scale subresource shows it;
// -1 if the number there is not the provider's or there is none.
func (f *Function) Counted() int64 {
	if n := f.Spec.Instances; n != nil && *n == f.Published() {
		return *n
	}
	return -1
}

// Overwritten reports whether somebody else has replaced the number in the scale subresource.
func (f *Function) Overwritten() bool { return f.Spec.Instances != nil && f.Counted() < 0 }

// Scaled returns the number that somebody else has written through the scale subresource, as
// kubectl scale does. It returns false for the provider's own number and for one that came with
// the spec, such as an exported manifest's: nobody wants that. Any number counts before the
// provider has published its first.
func (f *Function) Scaled() (n int64, ok bool) {
	if !f.Overwritten() || f.Published() >= 0 && len(Scalers(f.ManagedFields)) == 0 {
		return 0, false
	}
	return *f.Spec.Instances, true
}

// Scalers returns those owners of an object's fields that own them through the scale
// subresource. It copies them. A later write of another number takes the ownership away.
func Scalers(owners []metav1.ManagedFieldsEntry) (scalers []metav1.ManagedFieldsEntry) {
	for i := range owners {
		if owners[i].Subresource == "scale" {
			scalers = append(scalers, owners[i])
		}
	}
	return scalers
}
