package processes

import (
	"cmp"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/keeper"
)

// description returns the state of a function. The lock is held.
func (fn *function) description() keeper.Description {
	d := fn.Describe()
	s := fn.forwarder.Stats()
	d.Cold, d.Waiting, d.Wanted = s.Cold, s.Waiting, uint64(fn.replicas.Wanted())
	d.Problem = fn.problem()
	for _, in := range fn.Instances {
		if in.up && in.There() {
			d.Revision = max(d.Revision, in.announced())
		}
	}
	return d
}

// problem returns why the function is not served as it should be, "" if there is no
// problem.
func (fn *function) problem() string {
	why := cmp.Or(fn.Failures.Why, fn.Unplaced, fn.forwarder.Problem())
	if why != "" && fn.earlier() {
		return provider.Before(why)
	}
	return why
}

// earlier reports whether only instances of an earlier deployment are ready.
func (fn *function) earlier() bool {
	earlier := false
	for _, in := range fn.Instances {
		if in.There() && in.Current() {
			return false
		}
		earlier = earlier || in.There()
	}
	return earlier
}

// status is what the provider shows of a function. Replicas is the number of instances that
// the function should have: right after a deployment its minimum, right after the
// scale route that route's number. The lock is held.
func (fn *function) status() provider.Status {
	s := provider.Status{Replicas: uint64(fn.replicas.Wanted()), Usage: fn.Usage(), Problem: fn.problem()}
	for _, in := range fn.Instances {
		if in.There() && s.AvailableReplicas < s.Replicas {
			s.AvailableReplicas++
		}
	}
	return s
}
