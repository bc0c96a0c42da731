package v1alpha1

import "strconv"

// Counted returns how many pods the function should have, as the provider has published it
// in the scale subresource; -1 if it has not.
func (f *Function) Counted() int64 {
	if n := f.Spec.Instances; n != nil && f.Annotations[InstancesAnnotation] == strconv.FormatInt(*n, 10) {
		return *n
	}
	return -1
}

// Scaled returns the number that somebody else, such as kubectl scale, has written to the
// scale subresource; false if the number there is the provider's own or there is none.
func (f *Function) Scaled() (n int64, ok bool) {
	if f.Spec.Instances == nil || f.Counted() >= 0 {
		return 0, false
	}
	return *f.Spec.Instances, true
}
