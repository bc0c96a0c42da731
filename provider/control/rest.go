package control

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/scaling"
)

const (
	// fewFunctions is the number of functions up to which each look examines all of them.
	fewFunctions = 256
	// restPeriod is the longest time between two examinations of a function at rest.
	restPeriod = time.Second
	// restRate is the load in requests/s below which a function rests.
	restRate = 0.01
)

// rest is what the latest examination of a function found, if the function rests: it has no load, and
// nothing about its instances changes. Looks pass over such a function until it gets a request, an
// instance of it changes, something about it is due, or restPeriod is over. Of 10,000 functions, few do
// not rest.
type rest struct {
	// seen is the function as the engine saw it, and arrivals how many requests had come.
	seen     scaling.Function
	arrivals uint64
	restSettings
	// until is when the function must be examined again, zero if it does not rest.
	until time.Time
}

// restSettings is what users and the platform change about a function at rest.
type restSettings struct {
	served   *provider.Function
	replicas uint64
	// leads: this replica leads.
	scaledToZero, leads bool
}

// rests reports whether a function rests that was examined.
func rests(fn *function, f *scaling.Function) bool {
	stats := &fn.stats
	busy := f.Rate > restRate || f.Level > 1 || stats.Waiting > 0 || stats.Starting || fn.Failures.Count > 0
	lacks := f.Min > len(f.Instances) || !fn.measured() || fn.handover.claiming
	helped := fn.Inference.Shadow != "" || fn.paired || len(fn.shadows.Instances)+len(fn.trials.Instances) > 0
	if busy || lacks || helped || fn.several() || fn.tuned != nil {
		return false
	}
	for i, in := range fn.Sorted() {
		if seen := &f.Instances[i]; seen.Revision != f.Revision || seen.IdleSince.IsZero() || !in.rests(seen) {
			return false
		}
	}
	return true
}

// restUntil is when a function at rest is examined again: after restPeriod or a part of it, so that functions
// that begin together do not stay together, but not after something is due.
func restUntil(now time.Time, fn *function, f *scaling.Function) time.Time {
	until := now.Add(restPeriod - restPeriod/64*time.Duration(fn.number%32))
	for _, due := range []time.Time{f.PreWarmAt, f.RetireAt, f.ParkAt} {
		if due.After(now) && due.Before(until) {
			until = due
		}
	}
	return until
}

// rests reports whether an instance is as the engine has seen it, and nothing about it changes.
func (in *instance) rests(seen *scaling.Running) bool {
	return in.ID == seen.ID && in.State == cluster.Ready && seen.State == cluster.Ready && !in.Retiring && !in.Suspect &&
		in.Parked == seen.Parked && in.away == in.Parked && in.previousConfig == nil && in.Config.CPU == seen.Config.CPU
}

// lasts reports whether the function need not be examined.
func (r *rest) lasts(now time.Time, fn *function) bool {
	arrived := dispatch.Arrivals(fn.dispatcher)+fn.replica.Arrivals(fn.Name) != r.arrivals
	if arrived || !now.Before(r.until) || fn.Failures.Count > 0 || len(fn.Instances) != len(r.seen.Instances) {
		return false
	}
	for i, in := range fn.Sorted() {
		if !in.rests(&r.seen.Instances[i]) {
			return false
		}
	}
	return true
}
