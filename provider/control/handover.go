package control

import (
	"context"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// This file decides which revision of a function answers while a deployment replaces instances: the
// earlier one, until the new one can carry its load; from then on only the new one. It takes over the
// instances that others have started.

// handover is what a function knows of that.
type handover struct {
	// over: the served revision answers, and earlier ones never again. claiming: it is not known
	// yet which one does, because instances of both are being taken over.
	over, claiming bool
	// seen is the latest revision of an instance that the leader has started, which this replica may
	// know before it knows the deployment.
	seen uint64
}

// handovers decides about them.
type handovers struct {
	keeper *keeper.Keeper[*instance]
	types  *paces
	// leads reports whether this replica starts and stops instances.
	leads func() bool
}

// latest is the number of the revision that answers, or takes over.
func latest(fn *function) uint64 { return max(fn.Revision, fn.handover.seen) }

// answering is what an instance knows of it.
type answering struct {
	// up: the dispatcher was told of it. passed: it was not when a later revision was served, and
	// is not any more.
	up, passed bool
	// number is that of the latest revision as which it answered, or was started.
	number uint64
}

// earlier reports whether the instance belongs to a revision before the latest. One that has
// answered as that revision does not, even if another one is to replace it.
func (in *instance) earlier() bool {
	fn, number := in.function, in.number
	if in.Revision == fn.Revision {
		number = max(number, in.Revision)
	}
	if fn.replica.Alone() {
		return in.Revision != fn.Revision && number != fn.Revision // A higher one was undone.
	}
	return number < latest(fn)
}

// answers reports whether a serving instance may answer requests.
func (in *instance) answers() bool {
	fn := in.function
	if !fn.replica.Alone() && in.number > latest(fn) {
		fn.handover.seen = in.number
		revise(fn)
	}
	switch {
	case fn.handover.claiming || in.passed:
		return false
	case in.earlier():
		return !fn.handover.over
	case fn.handover.over || in.up:
		return true
	}
	if earlierRate(fn) > 0 {
		return false
	}
	decidedTakeOver(fn, in.peakRate())
	takeOver(fn)
	return true
}

// announced notes that the dispatcher is told of the instance, and returns the number as which it
// answers. An instance that stays answers as the new revision when the others do.
func (in *instance) announced() uint64 {
	in.up = true
	if fn := in.function; fn.handover.over && in.Revision == fn.Revision {
		in.number = fn.Revision
	}
	return in.number
}

// peakRate is the highest rate of an instance's full batches, in requests/s.
func (in *instance) peakRate() float64 { return float64(in.batch) / in.exec.Seconds() }

// earlierRate is the sum of peakRate over the instances of earlier revisions that answer, with
// those that are silent for the moment.
func earlierRate(fn *function) (sum float64) {
	for _, in := range fn.Instances {
		if in.up && in.earlier() && in.State == cluster.Ready && !in.Retiring && !in.away && in.classes != nobody {
			sum += in.peakRate()
		}
	}
	return sum
}

// decidedTakeOver adds the hand-over to the decisions, if an earlier revision has answered until now. Call it before
// takeOver. The instances of the served revision serve a rate in requests/s.
func decidedTakeOver(fn *function, rate float64) {
	answered := func(in *instance) bool { return in.up && in.earlier() }
	if slices.ContainsFunc(fn.Sorted(), answered) {
		decided(fn, time.Now(), decisions.Revision, decisions.Fields{Revision: fn.Revision, Carries: rate})
	}
}

// takeOver makes all instances of the served revision answer, and says so to the dispatcher.
func takeOver(fn *function) {
	fn.handover.over = true
	for _, in := range fn.Sorted() {
		if in.serves() && !in.earlier() {
			in.Up()
		}
	}
}

// revise notes that another revision is served from now on.
func revise(fn *function) {
	fn.handover.over = false
	for _, in := range fn.Instances {
		in.passed = !in.up && in.earlier()
	}
}

// decide lets the served revision take over if its instances carry what the earlier ones do, or
// if those answer no more. The lock is held.
func (c *handovers) decide(fn *function) {
	seen := fn.handover.seen
	there := func(in *instance) bool { return in.number == seen }
	if seen > fn.Revision && !slices.ContainsFunc(fn.Sorted(), there) {
		fn.handover.seen = 0 // It was undone.
		revise(fn)
	}
	if fn.handover.over {
		return
	}
	ready := 0.0
	for _, in := range fn.Instances {
		if in.serves() && !in.earlier() {
			ready += in.peakRate()
		}
	}
	serving := earlierRate(fn)
	if ready == 0 || !keeper.HandOver(ready, serving, serving) {
		return
	}
	decidedTakeOver(fn, ready)
	fn.handover.over = true // Before earlier ones stop, so that none comes back.
	for _, in := range fn.Sorted() {
		if in.earlier() && in.up {
			c.supersede(in)
		}
	}
	takeOver(fn)
}

// supersede makes an instance of an earlier revision answer no more. The leader stops it.
func (c *handovers) supersede(in *instance) {
	done, cancel := context.WithCancel(c.keeper.Context())
	cancel()
	_ = in.function.dispatcher.Drain(done, in.ID) // done has ended, so Drain does not wait: the keeper does.
	if c.leads() {
		c.stop(in, time.Now(), scaling.Reason{Why: scaling.Superseded})
	}
}

// stop retires an instance that may answer requests. The lock is held.
func (c *handovers) stop(in *instance, now time.Time, why scaling.Reason) {
	if !in.Retiring {
		decided(in.function, now, decisions.Stop, about(in, why))
		in.function.stopped += uint64(in.Config.Members())
		in.leaves()
	}
	c.keeper.Retire(in, string(why.Why))
}

// leaves makes requests wait for the new revision, as for a first instance, if an instance of an earlier
// one stops that answers until then: its successor starts in its room. Call it before it is drained.
func (in *instance) leaves() {
	if fn := in.function; in.up && in.earlier() && !fn.handover.over {
		dispatch.Await(fn.dispatcher)
	}
}

// adopt adds an instance to its function, or returns nil if the profile does not cover its
// config. The lock is held.
func (c *handovers) adopt(fn *function, seen cluster.Instance) *instance {
	a := fn.artefact(seen.Artefact.Name)
	if a == nil {
		return nil
	}
	if seen.Role == cluster.Shadow {
		in := &instance{function: fn, config: seen.Config.String(), origin: seen.Revision}
		c.keeper.Add(in, &fn.shadows, seen)
		return in
	}
	p := a.on(c.types.kind(seen.Node))
	table := a.table(p, seen.Config.Batch, capacity.ShareOf(seen.Config))
	if len(table) == 0 {
		return nil
	}
	in := &instance{function: fn, table: table, times: p.times, config: seen.Config.String(), origin: seen.Revision}
	in.number = seen.Revision
	if seen.Model == a.Model {
		in.accuracy = a.accuracy
	}
	c.keeper.Add(in, &fn.Fleet, seen)
	in.fit()
	return in
}

// claim takes over the function's instances that an earlier provider or another replica has
// started. It needs the profile for their times. The lock is held.
func (c *handovers) claim(fn *function) {
	fn.handover.claiming = true
	defer c.claimed(fn)
	c.keeper.Claim(fn.Name, func(known cluster.Instance) (*instance, string) {
		if known.Role == cluster.Trial {
			return nil, leftTrial
		}
		in := c.adopt(fn, known)
		if in == nil && slices.ContainsFunc(fn.unknown, func(m Model) bool { return m.Name == known.Artefact.Name }) {
			return nil, keeper.Later
		}
		if in != nil && in.Role == cluster.Body && in.Paired {
			in.order, in.tookOver, fn.paired = unknownPair, true, true
		}
		if in == nil {
			return nil, "the profile does not cover its config"
		}
		switch a := fn.artefact(in.Artefact.Name); {
		case in.Model != a.Model || !sameContent(in.Bundle, a.Bundle):
			// The image's content changed while no provider ran.
			in.replace()
			in.times = nil
		case fn.knows(&in.Instance):
			in.Revision = fn.Revision
		}
		if in.away = in.Parked; in.away {
			in.idleSince = time.Now()
		}
		return in, ""
	})
}

// claimed decides which revision answers after instances of a function were taken over. An earlier
// provider would have decided the same.
func (c *handovers) claimed(fn *function) {
	fn.handover.claiming = false
	if !fn.handover.over {
		ready, earlier := 0.0, 0.0
		for _, in := range fn.Instances {
			switch {
			case !in.serves():
			case in.earlier():
				earlier += in.peakRate()
			default:
				ready += in.peakRate()
			}
		}
		fn.handover.over = ready > 0 && keeper.HandOver(ready, earlier, earlier)
	}
	for _, in := range fn.Sorted() {
		if in.There() {
			in.Up()
		}
	}
}
