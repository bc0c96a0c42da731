package scaling

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// view is one function in one pass.
type view struct {
	Function
	engine *Engine
	memory *memory
	// live has the Starting and Ready instances of the current revision, old those of
	// older ones; both by ID. owned: live is a copy, not the caller's slice.
	live, old []Running
	owned     bool
	// parked has the parked instances of the current revision, by ID. They count neither
	// as live nor as capacity.
	parked []Running
	// shadows has the Starting and Ready shadows of live instances.
	shadows []Running
	// sum is the range of all live instances at the demand, valid if summed. peakSum is
	// the range at the peak, valid if peakSummed.
	sum, peakSum       capacity.Range
	summed, peakSummed bool
	// steady is the measured load with headroom. demand adds the burst of waiting
	// requests. top is the highest demand of the window, by which instances are exchanged, and peak that of the time for
	// which it is held ([hold]), by which they are released. All are in requests per second.
	steady, demand, peak, top float64
	// joint: the function is planned together with others.
	joint bool
	// floor is the minimum number of instances.
	floor int
	// prewarm: the cold-start policy wants an instance without a request.
	// idle: no request executes or waits, and the keep-alive is over.
	prewarm, idle bool
	// resting: no request executes or waits, and the instances must be parked.
	// woken: this plan unparks some.
	resting, woken bool
	// retired: this plan stops all instances.
	retired bool
	// yielding: some of its instances make room for others. It must not take that room
	// back in the same plan.
	yielding bool
	// started and startedUp count what this plan starts. startedOf has it by artefact, if
	// sets has any.
	started   int
	startedUp float64
	startedOf []startedUp
	// sets are the sets of artefacts that must carry some of the load themselves.
	sets []set
	// yielded: what the function prefers does not fit, and this plan leaves it out.
	yielded bool
	// short is why this plan leaves load unplaced.
	short placing.Reason
	// carried is what the instances carried before the plan, valid if reasoned.
	carried  float64
	reasoned bool
	// allowed caches the result of pass.allowed.
	allowed placing.Allowed
	// atDemand and atPeak cache the ranges of candidates at the demand and at the peak.
	atDemand, atPeak []ranged
}

// startedUp is what the instances of an artefact that this plan starts serve.
type startedUp struct {
	artefact string
	up       float64
}

// ranged is a candidate and its range by Eq. 1. inTime leaves out what is served late.
type ranged struct {
	with   capacity.Candidate
	inTime bool
	bounds capacity.Range
}

// changed must be called before an instance is changed or removed.
func (v *view) changed() {
	if !v.owned {
		v.live, v.owned = slices.Clone(v.live), true
	}
	v.summed, v.peakSummed = false, false
}

// wanted returns a demand of rps for the function, as a part of its load.
func (v *view) wanted(rps float64) capacity.Demand {
	return capacity.Demand{RPS: rps, SLO: v.SLO, Percentile: v.Percentile, Configs: narrowest(v), Queue: v.Queue, Nodes: v.Nodes, Tenant: v.Tenant, Load: max(v.demand, rps)}
}

// choices returns the possible instances of the function at its load, or at rps if that
// is more. The caller must not change them.
func (v *view) choices(rps float64, crowded bool) []capacity.Choice {
	return v.memory.Choices(max(v.demand, rps), crowded)
}

// bounds is the range by Eq. 1 of one of the function's instances at the demand.
func (v *view) bounds(in *Running) capacity.Range {
	return rangeOf(v, in, v.demand, &v.atDemand)
}

// peaked is the range of an instance at the peak.
func (v *view) peaked(in *Running) capacity.Range {
	if v.peak == v.demand {
		return v.bounds(in)
	}
	return rangeOf(v, in, v.peak, &v.atPeak)
}

// ranged returns the range of a candidate at a load. It caches ranges in known: a
// function has few configs, and each is needed many times.
func (v *view) ranged(with capacity.Candidate, load float64, inTime bool, known *[]ranged) capacity.Range {
	for i := range *known {
		if k := &(*known)[i]; k.with == with && k.inTime == inTime {
			return k.bounds
		}
	}
	r := capacity.Range{}
	if inTime {
		r = v.memory.InTime(with, load)
	} else {
		r = v.memory.Range(with, load)
	}
	*known = append(*known, ranged{with, inTime, r})
	return r
}

// total is [R_min, R_max] of the instances at the demand.
func (v *view) total() capacity.Range {
	if !v.summed {
		v.sum, v.summed = total(v.live, v.bounds), true
	}
	return v.sum
}

// high is [R_min, R_max] of the instances at the peak.
func (v *view) high() capacity.Range {
	if v.peak == v.demand {
		return v.total()
	}
	if !v.peakSummed {
		v.peakSum, v.peakSummed = total(v.live, v.peaked), true
	}
	return v.peakSum
}

func total(set []Running, bounds func(*Running) capacity.Range) capacity.Range {
	var sum capacity.Range
	for i := range set {
		r := bounds(&set[i])
		sum.Low, sum.Up = sum.Low+r.Low, sum.Up+r.Up
	}
	return sum
}

// count is how many instances of the current revision there will be, without those
// that stay parked.
func (v *view) count() int { return len(v.live) + v.started }

// capacity is R_max of the instances that there will be.
func (v *view) capacity() float64 { return v.total().Up + v.startedUp }

// remove removes an instance that the plan stops.
func (v *view) remove(id cluster.InstanceID) {
	v.changed()
	is := func(in Running) bool { return in.ID == id }
	v.live = slices.DeleteFunc(v.live, is)
	v.old = slices.DeleteFunc(v.old, is)
	if slices.ContainsFunc(v.parked, is) { // The slice may be the caller's.
		v.parked = slices.DeleteFunc(slices.Clone(v.parked), is)
	}
}

// settled reports whether the engine has observed the function's load for as long as it holds a demand, and knows how high
// it has become since it last rose. After a pause of two seconds nothing else was held: the first 27 of 3,700 requests a
// second took two thirds of its share from an instance that had carried them before, and 768 requests were late.
func settled(v *view, now time.Time) bool {
	return v.memory.Settled(now, hold(v)) && now.Sub(v.memory.rise.last) >= shortestHold
}

// wantsFirst reports whether the function has no instance and needs one. A measured load
// alone is no reason: it lags, and the first request that finds no instance waits. A
// function with parked instances needs one only for waiting requests or its minimum.
func (v *view) wantsFirst() bool {
	switch {
	case v.count() > 0 || v.retired || v.yielding:
		return false
	case len(v.parked) > 0:
		return v.Waiting > 0 || v.floor > 0
	}
	return v.Waiting > 0 || v.prewarm || v.floor > 0 || len(v.old) > 0
}

// mayGrow reports whether the function may get another instance.
func (v *view) mayGrow() bool {
	return v.short == placing.None && !v.yielding && !v.retired && (v.count() > 0 || v.floor > 0)
}

// mayEvict reports whether the function may take the room of others: only for waiting
// requests or its minimum of instances, not in advance.
func (v *view) mayEvict() bool { return v.Waiting > 0 || v.floor > 0 }

// all is how many instances of the current revision there are, parked or not.
func (v *view) all() int { return len(v.live) + len(v.parked) }

// current reports whether an instance is of the current revision and none that the function
// leaves. Those it leaves serve until others are ready, as those of an older revision do.
func (v *view) current(in *Running) bool {
	_, leaves := slices.BinarySearch(v.memory.departure.from, in.ID)
	return in.Revision >= v.Revision && !leaves
}

// set is a set of artefacts with the requests that no others may answer.
type set struct {
	artefacts []string // sorted
	part      float64
	waiting   int
	// lenient: the function only prefers that they carry it ([Function.Accurate]).
	lenient bool
}

func (s *set) has(artefact string) bool {
	_, found := slices.BinarySearch(s.artefacts, artefact)
	return found
}

// narrowest returns the candidates of the smallest set that falls short, all if none does.
func narrowest(v *view) []capacity.Candidate {
	var least *set
	for i := range v.sets {
		if s := &v.sets[i]; v.lack(s) > 0 && (least == nil || len(s.artefacts) < len(least.artefacts)) {
			least = s
		}
	}
	if least == nil {
		return v.Configs
	}
	return slices.DeleteFunc(slices.Clone(v.Configs), func(c capacity.Candidate) bool { return !least.has(c.Artefact) })
}

// lack is how much a set's instances fall short of the load that only they may carry.
func (v *view) lack(s *set) float64 {
	has := 0.0
	for i := range v.live {
		if s.has(v.live[i].Artefact) {
			has += v.bounds(&v.live[i]).Up
		}
	}
	for _, x := range v.startedOf {
		if s.has(x.artefact) {
			has += x.up
		}
	}
	demand := s.demandOf(v.demand)
	if lack := demand - has; lack > capacity.Negligible*demand {
		return lack
	}
	return 0
}

// demandOf is the load at a load of the whole function that only a set may carry. While its
// requests wait it is at least that of some load.
func (s *set) demandOf(load float64) float64 {
	if s.waiting > 0 {
		return max(s.part*load, capacity.SomeLoad)
	}
	return s.part * load
}

// residual is the load that the function's instances cannot take. A resting function has
// none, whatever was measured.
func (v *view) residual() float64 {
	residual := v.wholeResidual()
	for i := range v.sets {
		if !v.resting {
			residual = max(residual, v.lack(&v.sets[i]))
		}
	}
	return residual
}

// wholeResidual is residual without regard to classes.
func (v *view) wholeResidual() float64 {
	if v.resting || v.demand == 0 {
		return 0
	}
	if residual := v.demand - v.capacity(); residual > capacity.Negligible*v.demand {
		return residual
	}
	return 0
}

// rangeOf is the range of an instance at a load, with its shadow if it has one.
func rangeOf(v *view, in *Running, load float64, known *[]ranged) capacity.Range {
	alone := v.ranged(in.with(), load, false, known)
	return in.pairing.best(alone, func(c capacity.Candidate) capacity.Range { return v.ranged(c, load, true, known) })
}

// pairingOf is the way to help an instance, nil if there is none. part asks for a part, "" for any.
func pairingOf(v *view, in *Running, part string) *Pairing {
	for i := range v.Pairings {
		if x := &v.Pairings[i]; x.Artefact == in.Artefact && x.CPU == in.Config.CPU && (part == "" || x.Part == part) {
			return x
		}
	}
	return nil
}
