package control

import (
	"context"
	"math/bits"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/peer"
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
	keeper.Fleet[*instance]
	// wanted is the latest deployment, nil once the function was removed;
	// abandon ends its preparation.
	wanted  *provider.Function
	abandon context.CancelFunc
	rules   *latency.Rules
	replica *peer.Replica
	log     zerolog.Logger

	dispatcher *dispatch.Dispatcher
	// tuned is the batching policy of a function of BATCH's, else nil.
	tuned *tuned
	// stats, running and executed are what the latest look has seen, kept for their
	// memory: of 10,000 instances it is 3 MB, ten times a second.
	stats    dispatch.Stats
	running  []scaling.Running
	executed []dispatch.Executed

	// artefacts are what its instances load, by name: none until the model's times are
	// known. They, secrets and values are of Function.
	artefacts []*artefact
	// secrets are the files of the function's secrets, by name; values tells
	// when one of them was replaced.
	secrets map[string]string
	values  string
	// fingerprint is that of its instances.
	fingerprint string

	// fallsBack: no instance is fast enough by what was seen, so that others go on.
	fallsBack bool
	// steering closes the loop from what requests experience to capacity.
	steering steering.Loop
	// carried is what its instances can take over its load, by the latest plan.
	carried float64

	// failed is why wanted cannot be served, ineligible why no node is fit for its
	// instances; "" where there is nothing to say.
	failed, ineligible string
	// warned is when it was logged last that there are too few instances.
	warned time.Time
	// ratios and parked are what the metrics hold.
	ratios map[string]float64
	parked int

	// replicas is how many instances are kept even without load.
	replicas uint64
	// scaledToZero: the scale route asked for none; a request undoes it.
	scaledToZero bool
	// activity is what the looks at its requests have seen; unwritten: what the
	// cold-start policy has learned by it since it was written.
	activity  *systems.Activity
	unwritten bool
}

func (c *Controller) newFunction(f *provider.Function, batches batching.Policy) *function {
	fn := &function{Function: f, rules: &c.rules, replica: c.options.Replica, log: c.options.Logger.With().Str("function", f.Name).Logger(), parked: -1, activity: systems.NewActivity(time.Now())}
	fn.tuned, _ = batches.(*tuned)
	recorder := c.options.Metrics.Function(f.Name)
	fn.dispatcher = dispatch.New(dispatch.Options{
		Policy: batches, SLO: f.Inference.SLO, ColdWait: c.options.ColdWait, QueueLimit: c.options.QueueLimit,
		Recorder: recorder, OnCold: func() { c.options.Replica.WakeLeader(c.Wake) }, OnLost: c.keeper.Lost, Dial: c.options.Dial,
	})
	fn.Fleet = keeper.NewFleet[*instance](fn.dispatcher, recorder)
	return fn
}

// policy is the batching policy of a function.
func policy(rules *latency.Rules, f *provider.Function) (batching.Policy, error) {
	p, err := batching.New(rules.PolicyName(f), batching.Options{SLO: f.Inference.SLO, MaxBatch: f.Inference.MaxBatch})
	if err == nil && batching.Of(rules.PolicyName(f)).Tuned {
		p = &tuned{Policy: p}
	}
	return p, err
}

// measured reports whether the times of what is served are known.
func (fn *function) measured() bool { return len(fn.artefacts) > 0 }

// artefact finds one by name, nil if there is none.
func (fn *function) artefact(name string) *artefact {
	for _, a := range fn.artefacts {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// candidates are those of all artefacts.
func (fn *function) candidates() []capacity.Candidate {
	if len(fn.artefacts) == 1 {
		return fn.artefacts[0].candidates
	}
	var all []capacity.Candidate
	for _, a := range fn.artefacts {
		all = append(all, a.candidates...)
	}
	return all
}

// slow is why the objective is not met by what was seen, "" if one artefact at least
// meets it.
func (fn *function) slow() (why string) {
	for _, a := range fn.artefacts {
		if why = a.plan.Slow; why == "" {
			return ""
		}
	}
	return why
}

// queue is where the function's requests wait.
func (fn *function) queue() capacity.Queue { return fn.rules.Queue(fn.Function) }

// knows reports whether the function's instances would be started as one was.
func (fn *function) knows(in *cluster.Instance) bool {
	return fn.fingerprint != "" && in.Fingerprint == fn.fingerprint
}

// instance is one instance with its function.
type instance struct {
	keeper.Kept
	function *function
	// table lists the predicted times of batches of 1, 2, …, and is never
	// empty; times corrects them, nil if nothing does. batch is the largest
	// that the objective allows, exec its time; useless: not even one request
	// can be in time, and it goes on by fallback, if at all.
	table   []time.Duration
	times   *correction.Correction
	batch   int
	exec    time.Duration
	useless bool
	// fallback is [latency.Rules.Fallback] of a useless one.
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
	// away: the dispatcher does not use it, because it is parked or on its way to
	// or from there; idleSince is then since when it does nothing, zero on its way
	// back. stays: it could not be parked once, and is not tried again.
	away, stays bool
	idleSince   time.Time
	// origin is the revision that the backend says it is of; Revision is 0 where
	// that does not count.
	origin uint64
}

// serves reports whether the instance takes batches.
func (in *instance) serves() bool { return in.There() && !in.away }

// Current implements [keeper.Instance].
func (in *instance) Current() bool { return in.Revision == in.function.Revision }

// Holds is what the instance takes of its node: while it gets another share, the larger
// one.
func (in *instance) Holds() cluster.Resources {
	held := in.Instance.Holds()
	if in.before != nil {
		held.CPU = max(held.CPU, in.before.CPU)
	}
	return held
}

// Up implements [keeper.Instance].
func (in *instance) Up() {
	if in.serves() {
		in.tell()
	}
}

// tell lets a ready instance take batches, or tells of its new rate or times.
func (in *instance) tell() {
	d, slo := in.describe(), in.function.Inference.SLO
	// Where the policy waits for a given time, a full batch is in time even then.
	d.Timeout = max(0, slo-batching.Travel(slo)-d.Exec[len(d.Exec)-1])
	if t := in.function.tuned; t != nil {
		t.set(&d)
	}
	in.function.dispatcher.Up(d, in.Network, in.Address)
}

// describe is what the batching policy needs to know of an instance. One with a
// queue of its own fills every batch, so none may be larger than the objective
// allows; a late-bound one takes what the deadlines of its requests allow.
func (in *instance) describe() batching.Instance {
	config, table := in.Config, in.table
	if in.before != nil {
		table = in.still
	}
	if in.useless && in.function.fallsBack && in.fallback != nil {
		table = in.fallback
	}
	if in.function.queue() == capacity.PerInstance {
		table = table[:min(in.batch, len(table))]
	}
	config.Batch = len(table)
	return batching.Instance{ID: in.ID, Config: config, Exec: table, Rate: in.rate}
}

// alike reports whether what an instance has executed up to now ran on the share
// that it has: not while that changes, and shortly after.
func (in *instance) alike(now time.Time) bool { return in.before == nil && now.After(in.mixed) }

// own is the artefact that the instance has loaded, if its times are the instance's, else
// nil.
func (in *instance) own() *artefact {
	if a := in.function.artefact(in.Artefact.Name); a != nil && a.times == in.times {
		return a
	}
	return nil
}

// can reports whether the instance's times with a config are known.
func (in *instance) can(config cluster.Config) bool {
	a := in.own()
	return a != nil && len(a.table(config.Batch, config.CPU)) > 0
}

// refit gives an instance its function's corrected times and tells the dispatcher
// what is new.
func (in *instance) refit() {
	if in.fit() {
		in.Up()
	}
}

// fit takes over the artefact's corrected times, if they are the instance's own,
// and finds out what the instance is good for under the objective; it tells
// whether anything has changed.
func (in *instance) fit() (changed bool) {
	fn := in.function
	if a := in.own(); a != nil {
		if table := a.table(in.Config.Batch, in.Config.CPU); correction.Differ(in.table, table) {
			in.table, changed = table, true
		}
		in.promised = a.times.Profile().Table(len(in.table), in.Config.CPU)
	}
	usable := fn.rules.Usable(fn.Function, in.table)
	if in.useless = usable == 0; in.useless {
		in.fallback = fn.rules.Fallback(fn.Function, in.table)
	}
	batch := max(1, usable)
	if batch < len(in.table) {
		batch = 1 << (bits.Len(uint(batch)) - 1) // As candidates are.
	}
	changed = changed || batch != in.batch
	in.batch, in.exec = batch, in.table[batch-1]
	return changed
}

// back has an instance that was away serve again.
func (in *instance) back() {
	in.away = false
	in.Up()
}

// fallBack lets instances go on that are too slow by what was seen, as long as none of the
// function's is not. There may be no room for one that is faster, or never be: two
// functions on one node may each wait for what the other has. Without executions nobody
// would see that the trouble has passed, and no request would be answered.
func (fn *function) fallBack() {
	falls := !slices.ContainsFunc(fn.Sorted(), func(in *instance) bool { return in.serves() && !in.useless })
	if falls == fn.fallsBack {
		return
	}
	fn.fallsBack = falls
	for _, in := range fn.Sorted() {
		if in.useless && in.fallback != nil {
			in.Up()
		}
	}
}
