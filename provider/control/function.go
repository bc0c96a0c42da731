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
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/peer"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/placing"
	"github.com/faas-infer/faas-infer/scaling/steering"
	"github.com/faas-infer/faas-infer/scaling/systems"
	"github.com/faas-infer/faas-infer/variant"
)

// function is a deployed function with everything that runs for it.
type function struct {
	// Function is the revision that is served: the latest with a known profile,
	// otherwise the first.
	*provider.Function
	keeper.Fleet[*instance]
	// shadows are its shadows, which get no requests themselves. paired: some body has one, was told of
	// one, or has not reported since.
	shadows keeper.Fleet[*instance]
	paired  bool
	// trials measure its models, and get no requests either.
	trials keeper.Fleet[*instance]
	wanting
	served
	searched search
	rules    *latency.Rules
	types    *nodeTypes
	replica  *peer.Replica
	// decisions is Options.Decisions.
	decisions *decisions.Log
	// grace is how long a retired instance may take at least to answer what it has.
	grace time.Duration
	log   zerolog.Logger

	dispatcher *dispatch.Dispatcher
	// counting counts the tokens of its requests' texts.
	counting dispatch.Counting
	classing classing
	handover handover
	// tuned is the function's batching policy if a tuner sets it, otherwise nil.
	tuned *tuned
	// stats, running and executed are the results of the latest look. The next look
	// reuses their memory: 10,000 instances take 3 MB, ten times a second.
	stats    dispatch.Stats
	running  []scaling.Running
	executed []dispatch.Executed

	// warmed is the latest deployment with [provider.Function.Warm] that has had an instance.
	warmed *provider.Function

	// number spreads the examinations of functions at rest.
	number int
	rest   rest

	// fallsBack: no instance is fast enough by its corrected times, so those that are
	// too slow serve.
	fallsBack bool
	// quick is what answers fastest, as far as that is asked.
	quick quickest
	// partsCheckedAt is the number of failures in a row after which its parts were looked at last.
	partsCheckedAt int
	// steering adapts the capacity to the share of requests that miss the objective.
	steering steering.Loop
	// carried is R_max (§3.2) divided by the measured load with headroom, in the latest plan, and load the measured
	// load in requests per second. short is why the plan left load without an instance.
	carried, load float64
	// capacity is R_max in requests/s in the latest plan.
	capacity float64
	short    placing.Reason
	// planned is the revision whose candidates the engine got at the latest look, 0 if it
	// got none because the times are not known or starts pause after a failure.
	planned uint64

	// ineligible is why no node is eligible for its instances, refusing which of them refuse them now; "" if
	// there is no problem.
	ineligible, refusing string
	// fixed is why an instance's quota could not be changed last.
	fixed string
	// warned is when the controller last logged that there are too few instances, and
	// replacedAt when it last had an instance replaced because of interference.
	warned, replacedAt time.Time
	// ratios, parked and states are the values that the metrics show.
	ratios map[string]float64
	parked int
	states map[inState]int

	// replicas is the number of instances to keep without load. stopped is how many pods or processes of
	// its instances plans have stopped.
	replicas, stopped uint64
	// scaledToZero: the scale route has set 0; the next request undoes it.
	scaledToZero bool
	// activity is the history of its requests; unwritten: the cold-start policy has
	// learned from it since it was last stored.
	activity *systems.Activity
	// meanRows is how many rows its requests have.
	meanRows scaling.MeanRows
	// backlog is the load of its asynchronous requests. hasQueue: there may be some.
	backlog     scaling.Backlog
	hasQueue    bool
	unwritten   bool
	keptHistory kept
}

// wanting is the latest deployment of a function. Only revisions changes it.
type wanting struct {
	// wanted is the deployment, nil once the function is removed, and bundle its bundle. abandon ends its
	// preparation, and again prepares it once more, for GPUs that were not searched.
	wanted  *provider.Function
	bundle  string
	abandon context.CancelFunc
	again   func()
	making  making
	// planning: it is being planned how to cut its models.
	planning bool
	// failed is why it cannot be served, unregistered why there are no generated variants of its models, "" if
	// there is no problem.
	failed, unregistered string
}

// served is what belongs to the served revision of a function beside the deployment. Only revisions changes it.
type served struct {
	// artefacts are what its instances load; none until the model's times are known.
	artefacts []*artefact
	// unknown are its models whose times are not known yet.
	unknown []Model
	// secrets are the paths of the function's secret files, by secret name; values changes when a secret is
	// replaced.
	secrets map[string]string
	values  string
}

// policy makes the batching policy of a function.
func policy(rules *latency.Rules, f *provider.Function) (batching.Policy, error) {
	p, err := batching.New(rules.PolicyName(f), batching.Options{SLO: f.Inference.SLO, MaxBatch: f.Inference.MaxBatch})
	if err == nil && batching.Of(rules.PolicyName(f)).Tuned {
		p = &tuned{Policy: p, name: rules.PolicyName(f)}
	}
	return p, err
}

// measured reports whether the times of the served revision's model are known.
func (fn *function) measured() bool { return len(fn.artefacts) > 0 }

// artefact finds an artefact by name, nil if there is none.
func (fn *function) artefact(name string) *artefact {
	for _, a := range fn.artefacts {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// accurate reports whether instances that have loaded the artefact may answer the function's
// requests, or those that ask for it.
func (fn *function) accurate(a *artefact) bool {
	return a != nil && (a.accuracy >= fn.Inference.Accuracy || fn.admits(a.Name))
}

// candidates lists the candidates of all artefacts that are accurate enough. Those of an
// artefact that is too slow now count only if all others are, too.
func (fn *function) candidates() []capacity.Candidate {
	if len(fn.artefacts) == 1 {
		return fn.artefacts[0].candidates
	}
	var all []capacity.Candidate
	slow := fn.slow() != ""
	for _, a := range fn.artefacts {
		if fn.accurate(a) && (slow || a.plan.Slow == "") {
			all = append(all, a.candidates...)
		}
	}
	return all
}

// tenantOf says which GPUs the function's instances may use: those on which the times of all its models are
// known that have times on any.
func tenantOf(fn *function) cluster.Tenant {
	var kinds []string
	known := false
	for _, a := range fn.artefacts {
		switch {
		case len(a.profile.Devices) == 0:
		case !known:
			kinds, known = slices.Clone(a.profile.Devices), true
		default:
			kinds = slices.DeleteFunc(kinds, func(kind string) bool { return !slices.Contains(a.profile.Devices, kind) })
		}
	}
	if known && len(kinds) == 0 {
		kinds = []string{cluster.NoKind}
	}
	return cluster.Tenant{Namespace: fn.Deployment.Namespace, Kinds: cluster.Kinds(kinds)}
}

// slow returns why no artefact that is accurate enough meets the objective by its corrected
// times, "" if at least one does.
func (fn *function) slow() (why string) {
	for _, a := range fn.artefacts {
		if !fn.accurate(a) {
			continue
		}
		if why = a.plan.Slow; why == "" {
			return ""
		}
	}
	return why
}

// queue says where the function's requests wait.
func (fn *function) queue() capacity.Queue { return fn.rules.Queue(fn.Function) }

// knows reports whether the function would start an instance in the same way as in.
func (fn *function) knows(in *cluster.Instance) bool {
	a := fn.artefact(in.Artefact.Name)
	return a != nil && a.fingerprint != "" && in.Fingerprint == a.fingerprint
}

// instance is one instance with its function.
type instance struct {
	keeper.Kept
	function *function
	// table lists the times of batches of 1, 2, … requests and is never empty;
	// times corrects them, nil if nothing does. batch is the largest batch that the
	// objective allows and exec its time. useless: not even a batch of one meets the
	// objective; the instance serves only as a fallback.
	table   []time.Duration
	times   *correction.Correction
	batch   int
	exec    time.Duration
	useless bool
	// fallback is the result of [latency.Rules.Fallback] for a useless instance.
	fallback []time.Duration
	// promised are the profile's own times, nil if the instance was started with
	// another profile.
	promised []time.Duration
	// rate is r_i and classes the classes that it serves, as the batching policy knows them.
	rate    float64
	classes uint16
	// config is the string of the Config that the instance really has. While its quota
	// is changed, previousConfig is that Config and previousTable its table; otherwise
	// both are nil. Executions that end before mixedUntil may have begun with an
	// earlier Config.
	config         string
	previousConfig *cluster.Config
	previousTable  []time.Duration
	mixedUntil     time.Time
	// successor is the instance that starts to take this one's place, "" for none. Until then it serves.
	successor cluster.InstanceID
	// resizeFailures counts failed changes of its quota in a row; the next change is
	// not tried before resizeAfter.
	resizeFailures int
	resizeAfter    time.Time
	// away: the dispatcher does not use it, because it is parked, being parked or being
	// unparked. idleSince is then the time since which it is idle, zero while it is being
	// unparked. neverPark: parking it failed once and is not tried again.
	away, neverPark bool
	idleSince       time.Time
	// origin is its revision according to the backend. Revision is 0 if the instance
	// does not run what that revision runs.
	origin uint64
	// accuracy is that of its artefact in the last deployment that it suited.
	accuracy float64
	tally    tally
	// follower follows its state by its executions.
	follower variant.Follower
	relief   relief
	answering
	// told is of bodies and shadows, and zero for others.
	told
}

// serves reports whether the instance takes batches.
func (in *instance) serves() bool { return in.There() && !in.away }

// Current implements [keeper.Instance].
func (in *instance) Current() bool { return in.Revision == in.function.Revision }

// replace makes the engine replace the instance, which no longer runs what its revision runs.
func (in *instance) replace() { in.Revision = 0 }

// Holds returns the resources that the instance takes from its node. While its CPU share is
// changed, it holds the larger share.
func (in *instance) Holds() cluster.Resources {
	held := in.Instance.Holds()
	if in.previousConfig != nil {
		held.CPU = max(held.CPU, in.previousConfig.CPU)
	}
	return held
}

// Up implements [keeper.Instance].
func (in *instance) Up() {
	if in.Role == cluster.Body && in.serves() && in.answers() {
		in.tell()
	}
}

// tell makes the dispatcher use a ready instance, or updates its rate and times there.
func (in *instance) tell() {
	d, slo := in.describe(), in.function.Inference.SLO
	// A policy that waits up to Timeout still gets a full batch back in time.
	d.Timeout = max(0, slo-batching.Travel(slo)-d.Exec[len(d.Exec)-1])
	if t := in.function.tuned; t != nil {
		t.set(&d)
	}
	d.Revision = in.announced()
	in.function.dispatcher.Up(d, in.Network, in.Address)
}

// describe returns the instance as the batching policy sees it. An instance with its own
// queue fills every batch, so its largest batch is the one that the objective allows. A
// late-bound instance may be offered more: the policy checks the deadlines of the requests.
func (in *instance) describe() batching.Instance {
	config, table := in.Config, in.table
	if in.previousConfig != nil {
		table = in.previousTable
	}
	if in.useless && in.function.fallsBack && in.fallback != nil {
		table = in.fallback
	}
	if in.function.queue() == capacity.PerInstance {
		table = table[:min(in.batch, len(table))]
	}
	if in.helped != nil && in.previousConfig == nil {
		table, in.pairTold = in.pairTable(), in.pairRatio
		config.Concurrency = in.helped.Concurrency()
		fn := in.function
		in.pairFull = min(max(1, fn.rules.Usable(fn.objective(), table)), len(table))
		if fn.queue() == capacity.PerInstance {
			table = table[:in.pairFull]
		}
	}
	config.Batch = len(table)
	in.classes = in.function.servedBy(in)
	d := batching.Instance{ID: in.ID, Config: config, Exec: table, Rate: in.rate, Slow: in.useless, Variant: in.Artefact.Name, Classes: in.classes}
	if in.times != nil && in.times.Sizes() != (correction.Sizes{}) {
		d.Sizes, d.Longest = in.times.Sizes(), in.times.Sizes().Longest()
	}
	return d
}

// sameShare reports whether the executions that end now ran on the instance's present share.
// They may not have while the share changes and for two executions after.
func (in *instance) sameShare(now time.Time) bool {
	return in.previousConfig == nil && now.After(in.mixedUntil)
}

// own returns the artefact that the instance has loaded, nil if the instance has other times.
func (in *instance) own() *artefact {
	if a := in.function.artefact(in.Artefact.Name); a != nil && a.paceOf(in.times) != nil {
		return a
	}
	return nil
}

// pace returns that of the instance's artefact on its node, nil if the instance has other times.
func (in *instance) pace() *pace {
	if a := in.function.artefact(in.Artefact.Name); a != nil {
		return a.paceOf(in.times)
	}
	return nil
}

// can reports whether the times of the instance with a config are known.
func (in *instance) can(config cluster.Config) bool {
	a := in.own()
	return a != nil && len(a.table(in.pace(), config.Batch, capacity.ShareOf(config))) > 0
}

// refit gives an instance its artefact's corrected times and passes changes on to the
// dispatcher.
func (in *instance) refit() {
	if in.fit() {
		in.Up()
	}
}

// fit updates the instance's table from its artefact's corrected times, and from the table
// the largest batch that meets the objective. It reports whether anything has changed.
func (in *instance) fit() (changed bool) {
	fn := in.function
	if a := in.own(); a != nil {
		p := in.pace()
		if table := a.table(p, in.Config.Batch, capacity.ShareOf(in.Config)); correction.Differ(in.table, table) {
			in.table, changed = table, true
		}
		in.promised = p.times.Profile().Table(len(in.table), capacity.ShareOf(in.Config))
	}
	usable := fn.rules.Usable(fn.Function, in.table)
	if in.useless = usable == 0; in.useless {
		in.fallback = fn.rules.Fallback(fn.Function, in.table)
	} else if strict := fn.objective(); strict != fn.Function {
		usable = fn.rules.Usable(strict, in.table)
	}
	in.DrainGrace = max(fn.grace, dispatch.Patience(in.table[len(in.table)-1]))
	batch := max(1, usable)
	if batch < len(in.table) {
		batch = 1 << (bits.Len(uint(batch)) - 1) // Candidates have powers of 2, too.
	}
	changed = changed || batch != in.batch
	in.batch, in.exec = batch, in.table[batch-1]
	return changed
}

// back makes an instance that was away serve again.
func (in *instance) back() {
	in.away = false
	in.Up()
}

// fallBack makes the function's too slow instances serve while it has no fast enough one.
// There may never be room for a faster instance: two functions on one node may each wait
// for the other's share. Without executions no request would be answered, and nobody would
// see that the slowness has passed.
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
