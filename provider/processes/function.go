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
	// revision is what is deployed.
	*revision
	keeper.Fleet[*instance]
	forwarder *forward.Forwarder
	replicas  *replica.Scaler
	// wish is the number that the scale route or the deployment gave last.
	wish uint64
	// arrivals is the counter at the last look.
	arrivals uint64
}

// instance is one instance with its function.
type instance struct {
	keeper.Kept
	function *function
}

// Holds is what the instance takes of its node.
func (in *instance) Holds() cluster.Resources { return in.Config.Resources }

// Current reports whether the instance is what its function would start now.
func (in *instance) Current() bool { return in.Fingerprint == in.function.fingerprint }

// Up lets a ready instance take requests.
func (in *instance) Up() { in.function.forwarder.Up(in.ID, in.Network, in.Address) }

func (c *Controller) newFunction(now time.Time, r *revision) *function {
	fn := &function{revision: r, wish: r.Replicas, replicas: replica.New(now, keeper.ScaleSettings(r.Inference), int(r.Replicas))}
	recorder := c.options.Metrics.Function(r.Name)
	fn.forwarder = forward.New(forward.Options{
		ColdWait: c.options.ColdWait, QueueLimit: c.options.QueueLimit, BodyIdle: c.options.BodyTimeout, Dial: c.options.Dial,
		Recorder: recorder, OnCold: c.Wake, OnLost: c.keeper.Lost,
	})
	fn.Fleet = keeper.NewFleet[*instance](fn.forwarder, recorder)
	return fn
}

// load is what was asked of the function.
func (fn *function) load() replica.Load {
	s := fn.forwarder.Stats()
	return replica.Load{Arrivals: s.Arrivals, InFlight: s.InFlight, Waiting: s.Waiting}
}

// change puts a later deployment in the place of the present one. Instances that
// it would start in just the same way stay.
func (fn *function) change(now time.Time, r *revision) {
	fn.revision = r
	fn.replicas.Configure(keeper.ScaleSettings(r.Inference))
	fn.want(now, r.Replicas)
	// An earlier problem need not be one any more.
	fn.Unplaced, fn.Failures = "", keeper.Failures{}
	fn.Tell(now)
}

// want takes a number that was given, unless it was given before.
func (fn *function) want(now time.Time, n uint64) {
	if n != fn.wish {
		fn.wish = n
		fn.replicas.Set(now, int(n), fn.load())
	}
}

// staying lists the instances that are not being retired, those that run what is
// deployed apart from others. Instances that are not ready come first, then the
// latest: the order in which they can be spared.
func (fn *function) staying() (current, old []*instance) {
	for _, in := range fn.Instances {
		switch {
		case in.Retiring:
		case in.Current():
			current = append(current, in)
		default:
			old = append(old, in)
		}
	}
	spare := func(a, b *instance) int {
		return cmp.Or(-compareBool(a.State != cluster.Ready, b.State != cluster.Ready),
			b.StartedAt.Compare(a.StartedAt), cmp.Compare(a.ID, b.ID))
	}
	slices.SortFunc(current, spare)
	slices.SortFunc(old, spare)
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

// start begins one instance. The lock is held.
func (c *Controller) start(fn *function, node string) {
	in := &instance{function: fn, Kept: keeper.Kept{DrainGrace: drainGrace(fn.env, c.options.DrainGrace)}}
	c.keeper.Add(in, &fn.Fleet, cluster.Instance{InstanceSpec: fn.spec(keeper.NewID(fn.Name), node), State: cluster.Starting, StartedAt: time.Now()})
	c.keeper.Start(in, nil)
}

// claim takes over the instances of an earlier provider that are this
// function's. Those of another content are replaced like after an update. The
// lock is held.
func (c *Controller) claim(now time.Time, fn *function) {
	c.keeper.Claim(fn.Name, func(known cluster.Instance) (*instance, string) {
		in := &instance{function: fn, Kept: keeper.Kept{DrainGrace: drainGrace(known.Env, c.options.DrainGrace)}}
		c.keeper.Add(in, &fn.Fleet, known)
		return in, ""
	})
	if n := len(fn.Instances); n > 0 {
		fn.replicas.Resume(now, n)
	}
}
