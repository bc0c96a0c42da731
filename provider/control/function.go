package control

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/steering"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// function is a deployed function with everything that runs for it.
type function struct {
	// Function is the revision that is served: the latest whose model has
	// been measured, or the first.
	*provider.Function
	// wanted is the latest deployment, nil once the function was removed;
	// abandon ends its preparation.
	wanted  *provider.Function
	abandon context.CancelFunc

	dispatcher *dispatch.Dispatcher
	// tuned is the batching policy of a function of BATCH's, else nil.
	tuned     *tuned
	metrics   *metrics.FunctionMetrics
	instances map[cluster.InstanceID]*instance
	// order is what sorted returns, nil when it has to be made anew: hundreds of
	// instances are looked at ten times a second, and seldom change.
	order []*instance
	// stats and running are what the latest look has seen, kept for their memory: of
	// 10,000 instances it is 3 MB, ten times a second.
	stats   dispatch.Stats
	running []scaling.Running

	// bundle is the bundle's directory, prepared the directory that instances
	// load. They, profile, times and candidates are of Function, and nil until
	// its model's times are known.
	bundle, prepared string
	// secrets are the files of the function's secrets, by name; values tells
	// when one of them was replaced.
	secrets map[string]string
	values  string
	profile *profiler.Profile
	// fingerprint is that of its instances, "" without other replicas.
	fingerprint string
	// times are the profile's, corrected by what instances take; plan is what follows
	// from them. Its candidates with means are candidates; promised have the profile's
	// own times.
	times                *correction.Correction
	plan                 latency.Plan
	candidates, promised []capacity.Candidate
	// executed and observed are learn's; fresh: something was seen since times
	// were corrected; unsaved: since it was written.
	executed []dispatch.Executed
	// peers is what the other replicas have told of its requests.
	peers          peerLoads
	observed       []correction.Observation
	corrected      time.Time
	fresh, unsaved bool
	// makesDo: no instance is fast enough by what was seen, so that others go on.
	fallsBack bool
	// steering closes the loop from what requests experience to capacity.
	steering steering.Loop
	// carried is what its instances can take over its load, by the latest plan.
	carried float64
	// means are how long executions take on average, by CPU share.
	means latency.Means

	// failed is why wanted cannot be served, unplaced why it has too few instances;
	// "" where there is nothing to say.
	failed, unplaced string
	// warned is when the latter was logged last.
	warned time.Time
	// failures are those of its instances in a row.
	failures failures
	// ineligible is why no node is fit for its instances.
	ineligible string
	// announced is what the dispatcher knows of these.
	announced advice
	// shown and held are what the metrics hold.
	shown    map[string]int
	ratios   map[string]float64
	held     cluster.Resources
	recorded bool

	// replicas is how many instances are kept even without load.
	replicas uint64
	// scaledToZero: the scale route asked for none; a request undoes it.
	scaledToZero bool
	// activity is what the looks at its requests have seen; unwritten: what the
	// cold-start policy has learned by it since it was written.
	activity  *systems.Activity
	unwritten bool
}

// instance is one instance with its function.
type instance struct {
	cluster.Instance
	function *function
	// table lists the predicted times of batches of 1, 2, …, and is never
	// empty; times corrects them, nil if nothing does. batch is the largest
	// that the objective allows, exec its time; useless: not even one request
	// can be in time, and it goes on by makeshift, if at all.
	table   []time.Duration
	times   *correction.Correction
	batch   int
	exec    time.Duration
	useless bool
	// fallback is [Controller.makeshift] of a useless one.
	fallback []time.Duration
	// promised are the profile's own times; nil of another profile.
	promised []time.Duration
	// rate is what the batching policy was told of r_i.
	rate float64
	// config is the string of the Config that the instance really has; before is
	// that Config while it gets another, else nil, and still its table; until mixed,
	// what it executes may have begun with an earlier one.
	config string
	before *cluster.Config
	still  []time.Duration
	mixed  time.Time
	// refused is how often in a row its Config could not be changed, fixed until when
	// that is not tried again.
	refused int
	fixed   time.Time
	usage   cluster.Resources
	// away: the dispatcher does not use it, because it is parked or on its way to
	// or from there; idleSince is then since when it does nothing, zero on its way
	// back. stays: it could not be parked once, and is not tried again.
	away, stays bool
	idleSince   time.Time
	// origin is the revision that the backend says it is of; Revision is 0 where
	// that does not count.
	origin uint64
	// unused is since when it has done nothing for this replica's dispatcher, if it
	// never has done anything.
	unused time.Time
	// asked is when the leader had this replica leave it alone, zero if it has not;
	// stopping: the backend is asked to stop it, or will be.
	asked    time.Time
	stopping bool
	// retiring: it takes nothing new. fault is why it is of no use any more,
	// nil if it was the engine's wish.
	retiring bool
	fault    error
	// begun is closed once the backend has been asked to start it, or will
	// not be; abandon makes sure of the latter, if it is not too late.
	begun   chan struct{}
	abandon context.CancelFunc
	// ready is closed once it has loaded.
	ready chan struct{}
	// gone is closed when nothing of it is left.
	gone chan struct{}
}

// there reports whether the instance has loaded and is to stay; serves, whether it
// takes batches.
func (in *instance) there() bool  { return in.State == cluster.Ready && !in.retiring }
func (in *instance) serves() bool { return in.there() && !in.away }

func (c *Controller) newFunction(f *provider.Function, batches batching.Policy) *function {
	fn := &function{Function: f, metrics: c.options.Metrics.Function(f.Name), instances: map[cluster.InstanceID]*instance{}, means: latency.Means{}, activity: systems.NewActivity(time.Now())}
	fn.tuned, _ = batches.(*tuned)
	fn.dispatcher = dispatch.New(dispatch.Options{
		Policy: batches, SLO: f.Inference.SLO, ColdWait: c.options.ColdWait, QueueLimit: c.options.QueueLimit,
		Recorder: fn.metrics, OnCold: c.missed, OnLost: c.lost, Dial: c.options.Dial,
	})
	return fn
}

func (c *Controller) policy(f *provider.Function) (batching.Policy, error) {
	p, err := batching.New(c.rules.PolicyName(f), batching.Options{SLO: f.Inference.SLO, MaxBatch: f.Inference.MaxBatch})
	if err == nil && c.rules.PolicyName(f) == batching.BatchName {
		p = &tuned{Policy: p}
	}
	return p, err
}

// sorted lists the instances by ID. It must not be changed.
func (fn *function) sorted() []*instance {
	if fn.order == nil && len(fn.instances) > 0 {
		fn.order = slices.SortedFunc(maps.Values(fn.instances), func(a, b *instance) int { return cmp.Compare(a.ID, b.ID) })
	}
	return fn.order
}

// adopt keeps an instance under its function; false if the profile says nothing
// of its config. The lock is held.
func (c *Controller) adopt(fn *function, in cluster.Instance) (*instance, bool) {
	table := c.table(fn, in.Config.Batch, in.Config.CPU)
	if len(table) == 0 {
		return nil, false
	}
	kept := &instance{Instance: in, function: fn, table: table, times: fn.times, config: in.Config.String(), origin: in.Revision,
		begun: make(chan struct{}), abandon: func() {}, ready: make(chan struct{}), gone: make(chan struct{})}
	if in.State == cluster.Ready {
		kept.loaded()
	}
	c.fit(kept)
	fn.instances[in.ID], fn.order = kept, nil
	c.instances[in.ID] = kept
	return kept, true
}

// describe is what the batching policy needs to know of an instance. One with a
// queue of its own fills every batch, so none may be larger than the objective
// allows; a late-bound one takes what the deadlines of its requests allow.
func (in *instance) describe(queue capacity.Queue) batching.Instance {
	config, table := in.Config, in.table
	if in.before != nil {
		table = in.still
	}
	if in.useless && in.function.fallsBack && in.fallback != nil {
		table = in.fallback
	}
	if queue == capacity.PerInstance {
		table = table[:min(in.batch, len(table))]
	}
	config.Batch = len(table)
	return batching.Instance{ID: in.ID, Config: config, Exec: table, Rate: in.rate}
}

// up lets a ready instance take batches, or tells of its new rate or times.
func (in *instance) up(queue capacity.Queue) {
	d, slo := in.describe(queue), in.function.Inference.SLO
	// Where the policy waits for a given time, a full batch is in time even then.
	d.Timeout = max(0, slo-batching.Travel(slo)-d.Exec[len(d.Exec)-1])
	if t := in.function.tuned; t != nil {
		t.set(&d)
	}
	in.function.dispatcher.Up(d, in.Network, in.Address)
}
