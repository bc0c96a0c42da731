package deployments

import (
	"cmp"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/keeper"
)

// description returns the state of a function with its instances. The lock is held.
func (fn *function) description() keeper.Description {
	d := fn.describe().Description
	for _, in := range fn.controller.pods[fn.Name] {
		if in.Leaving {
			continue
		}
		shown := in.Instance(fn.config())
		if in.up {
			shown.State = cluster.Ready
		} else if shown.State == cluster.Ready {
			shown.State, shown.Reason = cluster.Starting, "it accepts no connection"
		}
		d.Instances = append(d.Instances, shown)
	}
	slices.SortFunc(d.Instances, func(a, b cluster.Instance) int { return cmp.Compare(a.ID, b.ID) })
	return d
}

// status is what the provider shows of a function. Replicas is the number of instances that the
// function should have. At a replica that does not lead, it is the number that the leader has set.
// The lock is held.
func (fn *function) status() provider.Status {
	d := fn.describe()
	return provider.Status{
		Replicas: d.Wanted, AvailableReplicas: min(uint64(d.Ready), d.Wanted),
		Usage: fn.controller.usage[fn.Name], Problem: d.Problem,
	}
}

// description describes a function without its instances.
type description struct {
	keeper.Description
	// hopeless: requests should not wait for an instance.
	hopeless bool
}

// describe returns a function's state. The lock is held.
func (fn *function) describe() description {
	var d description
	s := fn.forwarder.Stats()
	d.Cold, d.Waiting, d.Wanted = s.Cold, s.Waiting, uint64(fn.wanted())
	var crashed, unplaced cluster.InstanceID
	latest := false
	for id, in := range fn.controller.pods[fn.Name] {
		switch p := in.Problem; {
		case in.up:
			d.Ready++
			latest = latest || in.Revision >= fn.Revision
			if in.answers {
				d.Revision = fn.answering
			}
		case in.Leaving || p.Text == "":
		case p.Unplaced:
			// Of several, show the first by name, so that the text stays the same.
			if unplaced == "" || id < unplaced {
				unplaced, d.Unplaced = id, p.Text
			}
		case crashed == "" || p.Hopeless && !d.hopeless || p.Hopeless == d.hopeless && id < crashed:
			crashed, d.Crash, d.hopeless = id, p.Text, p.Hopeless
		}
	}
	if is := fn.controller.deployed[fn.Name]; is.failure != "" && d.Unplaced == "" {
		d.Unplaced = "the cluster creates no instance: " + is.failure
	}
	if fn.Failures.Why != "" {
		d.Unplaced = "could not change the function's Deployment: " + fn.Failures.Why
	}
	d.Problem = cmp.Or(d.Crash, d.Unplaced)
	if d.Problem != "" && d.Ready > 0 && !latest { // Only instances of earlier deployments are ready.
		d.Problem = provider.Before(d.Problem)
	}
	return d
}

// wanted returns the number of instances that the function should have. The lock is held.
func (fn *function) wanted() int {
	if is, ok := fn.controller.deployed[fn.Name]; ok && !fn.controller.leading() {
		return is.replicas
	}
	return fn.replicas.Wanted()
}

// tell gives the forwarder the answer for requests that find no ready instance.
func (fn *function) tell(d description) {
	fn.Announce(cmp.Or(d.Crash, d.Unplaced), d.Crash != "" && d.hopeless)
}

// record updates the function's metrics that have changed. The lock is held.
func (fn *function) record(d description) {
	if d.Ready != fn.shown {
		fn.shown = d.Ready
		held := fn.config().Resources
		fn.Metrics.SetInstances(fn.config().String(), d.Ready)
		fn.Metrics.SetAllocated(cluster.Resources{CPU: d.Ready * held.CPU, Memory: int64(d.Ready) * held.Memory})
	}
	if used := fn.controller.usage[fn.Name]; used != fn.used {
		fn.used = used
		fn.Metrics.SetUsed(used)
	}
}
