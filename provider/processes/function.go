package processes

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/forward"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/scaling/replica"
)

// function is a deployed function with everything that runs for it.
type function struct {
	// revision is the deployed revision.
	*revision
	keeper.Fleet[*instance]
	forwarder *forward.Forwarder
	replicas  keeper.Scaler
	// handed says that the deployed revision answers, and earlier ones never again. claiming: it is
	// not known yet which one answers, because instances of both are being taken over.
	handed, claiming bool
}

// instance is one instance with its function.
type instance struct {
	keeper.Kept
	function *function
	// up: the forwarder sends it requests. passed: it had none when a later revision was deployed,
	// and gets none.
	up, passed bool
	// revision is the number of the latest revision that it ran as.
	revision uint64
}

// Holds returns what the instance holds of its node.
func (in *instance) Holds() cluster.Resources { return in.Config.Resources }

// Current reports whether its function would now start the same instance.
func (in *instance) Current() bool { return in.Fingerprint == in.function.fingerprint }

// Up makes the forwarder send a ready instance requests, unless those of another revision answer
// them.
func (in *instance) Up() {
	fn := in.function
	current := in.Current()
	if current && !fn.handed && !fn.claiming {
		fn.handed = fn.serving() == 0
	}
	if fn.claiming || in.passed || current != fn.handed {
		return
	}
	if in.up = true; current {
		in.revision = fn.Revision
	}
	fn.forwarder.Up(in.ID, in.Network, in.Address, in.announced())
}

// announced is the number of the revision as which it answers.
func (in *instance) announced() uint64 { return cmp.Or(in.revision, in.Kept.Revision) }

// serving counts the instances of earlier revisions that answer requests, with those that are
// silent for the moment.
func (fn *function) serving() (n int) {
	for _, in := range fn.Instances {
		if in.up && in.State == cluster.Ready && !in.Retiring && !in.Current() {
			n++
		}
	}
	return n
}

// handOver lets the deployed revision answer if enough of its instances are ready. The lock is held.
func (fn *function) handOver(ready, wanted int) {
	if fn.handed || !keeper.HandOver(float64(ready), float64(fn.serving()), float64(wanted)) {
		return
	}
	fn.handed = true
	fn.raise()
}

// raise tells the forwarder of the instances that may answer.
func (fn *function) raise() {
	for _, in := range fn.Sorted() {
		if in.There() {
			in.Up()
		}
	}
}

func (c *Controller) newFunction(now time.Time, r *revision) *function {
	scaler := replica.New(now, keeper.ScaleSettings(r.Inference), int(r.Replicas))
	fn := &function{revision: r, replicas: keeper.Scaler{Scaler: scaler, Wish: r.Replicas}}
	recorder := c.options.Metrics.Function(r.Name)
	fn.forwarder = forward.New(forward.Options{
		ColdWait: c.options.ColdWait, QueueLimit: c.options.QueueLimit, BodyIdle: c.options.BodyTimeout, Dial: c.options.Dial,
		Recorder: recorder, OnCold: c.Wake, OnLost: c.keeper.Lost, OnSuspect: c.keeper.Suspect,
	})
	fn.forwarder.SetExecTimeout(forward.ExecTimeout(r.env))
	fn.Fleet = keeper.NewFleet[*instance](fn.forwarder, recorder)
	return fn
}

// load returns the function's load.
func (fn *function) load() replica.Load {
	s := fn.forwarder.Stats()
	return replica.Load{Arrivals: s.Arrivals, InFlight: s.InFlight, Waiting: s.Waiting}
}

// change replaces the present deployment by a later one. Instances that the later one
// would start in the same way stay.
func (fn *function) change(now time.Time, r *revision) {
	fn.revision = r
	fn.handed = fn.serving() == 0
	for _, in := range fn.Instances {
		in.passed = !in.up && !in.Current()
	}
	fn.raise() // Those that stay run as the new revision.
	fn.forwarder.SetExecTimeout(forward.ExecTimeout(r.env))
	fn.replicas.Deployed(now, r.Function, fn.load())
	// The new deployment may not have the earlier problem.
	fn.Unplaced, fn.Failures = "", keeper.Failures{}
	fn.Tell(now)
}

// staying lists the instances that are not being retired: current ones, which run the
// deployed revision, and old ones. Both are in the order in which to retire them: those
// that are not ready first, then the latest.
func (fn *function) staying() (current, old []*instance) {
	for _, in := range fn.Instances {
		switch {
		case in.Retiring, in.Suspect:
		case in.Current():
			current = append(current, in)
		default:
			old = append(old, in)
		}
	}
	retireOrder := func(a, b *instance) int {
		return cmp.Or(-compareBool(a.State != cluster.Ready, b.State != cluster.Ready),
			b.StartedAt.Compare(a.StartedAt), cmp.Compare(a.ID, b.ID))
	}
	slices.SortFunc(current, retireOrder)
	slices.SortFunc(old, retireOrder)
	return current, old
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// start starts one instance. The lock is held.
func (c *Controller) start(fn *function, spec cluster.InstanceSpec) {
	in := &instance{function: fn, Kept: keeper.Kept{DrainGrace: drainGrace(fn.env, c.options.DrainGrace)}}
	c.keeper.Add(in, &fn.Fleet, cluster.Instance{InstanceSpec: spec, State: cluster.Starting, StartedAt: time.Now()})
	c.keeper.Start(in, nil)
}

// claim takes over the function's instances that an earlier provider has started.
// Instances with other content are replaced as after an update. The lock is held.
func (c *Controller) claim(now time.Time, fn *function) {
	fn.claiming = true
	c.keeper.Claim(fn.Name, func(known cluster.Instance) (*instance, string) {
		in := &instance{function: fn, Kept: keeper.Kept{DrainGrace: drainGrace(known.Env, c.options.DrainGrace)}}
		c.keeper.Add(in, &fn.Fleet, known)
		return in, ""
	})
	fn.claiming = false
	current, old := 0, 0
	for _, in := range fn.Instances {
		switch {
		case !in.There():
		case in.Current():
			current++
		default:
			old++
		}
	}
	fn.handed = keeper.HandOver(float64(current), float64(old), float64(fn.replicas.Wish))
	fn.raise()
	if n := len(fn.Instances); n > 0 {
		fn.replicas.Resume(now, n)
	}
}
