package processes

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/forward"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/scaling/replica"
)

// function is a deployed function with everything that runs for it.
type function struct {
	// revision is what is deployed.
	*revision
	forwarder *forward.Forwarder
	metrics   *metrics.FunctionMetrics
	replicas  *replica.Scaler
	// wish is the number that the scale route or the deployment gave last.
	wish      uint64
	instances map[cluster.InstanceID]*instance

	// crash is why its instances do not live, unplaced why it has too few; ""
	// where there is nothing to say. told is what the forwarder knows of these.
	crash, unplaced string
	announced       advice
	// shown, of the config label, and held are what the metrics hold.
	shown    int
	label    string
	held     cluster.Resources
	recorded bool

	// arrivals is the counter at the last look.
	arrivals uint64
	// failures counts the instances in a row that did not live; notBefore is
	// when the next may be started.
	failures  int
	notBefore time.Time
}

// instance is one instance with its function.
type instance struct {
	cluster.Instance
	function *function
	usage    cluster.Resources
	// retiring: it takes nothing new. fault is why it is of no use any more,
	// nil if nobody wants it.
	retiring bool
	fault    error
	// begun is closed once the backend has been asked to start it, or will
	// not be; abandon makes sure of the latter, if it is not too late.
	begun   chan struct{}
	abandon context.CancelFunc
}

// serves reports whether the instance takes requests.
func (in *instance) serves() bool { return in.State == cluster.Ready && !in.retiring }

// current reports whether the instance is what its function would start now.
func (in *instance) current() bool { return in.Fingerprint == in.function.fingerprint }

// up lets a ready instance take requests.
func (in *instance) up() { in.function.forwarder.Up(in.ID, in.Network, in.Address) }

func (c *Controller) newFunction(now time.Time, r *revision) *function {
	fn := &function{
		revision: r, metrics: c.options.Metrics.Function(r.Name), wish: r.Replicas,
		replicas:  replica.New(now, settings(r.Inference), int(r.Replicas)),
		instances: map[cluster.InstanceID]*instance{},
	}
	fn.forwarder = forward.New(forward.Options{
		ColdWait: c.options.ColdWait, QueueLimit: c.options.QueueLimit, BodyIdle: c.options.BodyTimeout, Dial: c.options.Dial,
		Recorder: fn.metrics, OnCold: c.Wake, OnLost: c.lost,
	})
	return fn
}

// settings is what a deployment asks of scaling.
func settings(in annotation.Inference) replica.Settings {
	s := replica.Settings{Min: in.MinReplicas, Max: in.MaxReplicas, Target: in.ScaleTarget,
		Zero: in.ScaleZero, ZeroAfter: cmp.Or(in.ZeroDuration, annotation.DefaultZeroDuration)}
	if in.ScaleType == annotation.TypeCapacity {
		s.Type = replica.ByCapacity
	}
	return s
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
	fn.replicas.Configure(settings(r.Inference))
	fn.want(now, r.Replicas)
	// What was wrong before need not be any more.
	fn.crash, fn.unplaced, fn.failures, fn.notBefore = "", "", 0, time.Time{}
	fn.tell(now)
}

// want takes a number that was given, unless it was given before.
func (fn *function) want(now time.Time, n uint64) {
	if n != fn.wish {
		fn.wish = n
		fn.replicas.Set(now, int(n), fn.load())
	}
}

// staying lists the instances that are not being retired, those that run what is
// deployed apart from others. What is not ready yet comes first, then the
// latest: the order in which they can be spared.
func (fn *function) staying() (current, old []*instance) {
	for _, in := range fn.instances {
		switch {
		case in.retiring:
		case in.current():
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

// adopt keeps an instance under its function. The lock is held.
func (c *Controller) adopt(fn *function, in cluster.Instance) *instance {
	kept := &instance{Instance: in, function: fn, begun: make(chan struct{}), abandon: func() {}}
	fn.instances[in.ID] = kept
	c.instances[in.ID] = kept
	return kept
}
