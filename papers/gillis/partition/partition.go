// Package partition plans how a model is cut over several functions (Gillis, ICDCS 2021).
// It times every way to run every group of layers on a platform, and chooses the plan
// with the least latency (§IV-B) or with the least cost under an SLO (§IV-C), both
// exactly. It does not know graphs: a [Model] says which groups there are and what their
// parts compute, keep and exchange. Begin at [NewSpace], then [Space.Fastest] and
// [Space.Cheapest]; [Platform] holds what a platform costs in time and money.
//
// All times are in milliseconds. A part's size is its weights and its activations.
package partition

import (
	"fmt"
	"math"

	"github.com/faas-infer/faas-infer/papers/gillis/partition/delay"
)

// Part is what one function computes of a group in one round.
type Part struct {
	// Compute is the mean time of the computation in ms.
	Compute float64
	// Weights are the bytes that the function keeps, Activations those that it needs at
	// their maximum while it computes.
	Weights, Activations int64
	// In are the bytes sent to the function, Out those that it returns.
	In, Out int64
}

// size returns the bytes that a function of only this part holds.
func (p *Part) size() int64 { return p.Weights + p.Activations }

// Option is one way to run a group of layers: its parts run at the same time, each on a
// function of its own.
type Option struct {
	// Name says how the group is cut: "whole", "2x2" or "channels 4". It is unique among
	// the options of a group.
	Name string
	// Parts has one entry per function. An option that is not cut has one part.
	Parts []Part
}

// Model is a linear sequence of layers (§III-C).
type Model interface {
	// Layers returns the number of layers.
	Layers() int
	// Options returns the ways to run layers [first, end) as one group. It returns none if
	// these layers cannot be grouped. The same arguments always give the same options.
	Options(first, end int) []Option
}

// Limits restrict the plans of a [Space] beyond what the platform does.
type Limits struct {
	// Functions is the maximum number of functions of a plan, the master included; 0
	// means no limit.
	Functions int
	// Placement says when the master computes a part.
	Placement Placement
}

// Placement says when the master computes one part of a group itself.
type Placement int

const (
	// WhereItHelps tries every group with and without a part on the master.
	WhereItHelps Placement = iota
	// WheneverItFits gives the master a part of each group if all the parts that it could
	// compute fit into its memory together, as the release of Gillis does. Otherwise it
	// equals WhereItHelps: the recursion of §IV-B lets a group's budget b be 0, and
	// Algorithm 1 then sends every part to workers.
	WheneverItFits
)

// Nobody is the Master of a round whose parts all run on workers.
const Nobody = -1

// Round is one group with one option and one placement, and what they cost.
type Round struct {
	// First and End are the group's layers [First, End).
	First, End int
	Option     *Option
	// Master is the index of the part that the master computes, or Nobody.
	Master int
	// Order lists the other parts in the order in which the master sends their inputs.
	// Only rounds of a [Plan] have it.
	Order []int
	// Time is the round's latency as the master sees it.
	Time delay.Moments
	// Work is the billed time of the workers in ms.
	Work float64
	// Weights are the bytes of weights that the master keeps for this round. Activations
	// are the bytes that it needs while the round runs: those of its own part, and the
	// tensors that it exchanges with workers.
	Weights, Activations int64
}

// Workers returns the number of functions that the round needs besides the master.
func (r *Round) Workers() int {
	if r.Master == Nobody {
		return len(r.Option.Parts)
	}
	return len(r.Option.Parts) - 1
}

// Plan is a sequence of rounds that together run all layers once.
type Plan struct {
	Rounds []Round
	// Time is the latency of a request, without the way to the master and back.
	Time delay.Moments
	// Work is the billed time of all workers in ms, and Cost the price of a request:
	// (⌈T/D⌉ + Σ ⌈Tw/D⌉)·D at the platform's price (§IV-C).
	Work, Cost float64
	// Weights are the bytes of weights that the master keeps (Eq. 2), Activations its
	// maximum over the rounds.
	Weights, Activations int64
}

// Functions returns the number of functions of the plan, the master included.
func (p *Plan) Functions() int {
	n := 1
	for i := range p.Rounds {
		n += p.Rounds[i].Workers()
	}
	return n
}

// NewPlan adds up rounds, which must follow each other. The platform gives the price and
// the order in which the master sends.
func NewPlan(p *Platform, rounds []Round) Plan {
	plan := Plan{Rounds: rounds}
	t := newTimer(p)
	for i := range rounds {
		r := &rounds[i]
		r.Order = append([]int(nil), t.order(r.Option.Parts, r.Master)...)
		plan.Time = plan.Time.Plus(r.Time)
		plan.Work += r.Work
		plan.Weights += r.Weights
		plan.Activations = max(plan.Activations, r.Activations)
	}
	plan.Cost = p.cost(plan.Time.Mean, plan.Work)
	return plan
}

// SLO is an objective for the latency of a request.
type SLO struct {
	// Ms is the latency that must be kept.
	Ms float64
	// Percentile is the share of requests, in percent, that must keep it. 0 means that
	// the mean latency must keep it, as in the paper (§IV-C).
	Percentile float64
}

// String writes the SLO with its unit.
func (s SLO) String() string {
	if s.Percentile == 0 {
		return fmt.Sprintf("%g ms on average", s.Ms)
	}
	return fmt.Sprintf("%g ms for %g %% of requests", s.Ms, s.Percentile)
}

// SLOError says that no plan meets an SLO.
type SLOError struct {
	SLO SLO
	// Fastest is the plan with the least latency, and Ms that latency, by the percentile of
	// the SLO.
	Fastest Plan
	Ms      float64
}

// Error names the SLO and the least that can be kept.
func (e *SLOError) Error() string {
	return fmt.Sprintf("SLO %v: no plan is that fast; the fastest takes %.1f ms on %d functions: raise the SLO to that",
		e.SLO, math.Ceil(e.Ms*10)/10, e.Fastest.Functions())
}

// MemoryError says that some layers fit into no function.
type MemoryError struct {
	// Memory is the platform's limit in bytes, Least the least with which there is a plan.
	Memory, Least int64
	// First and End are the layers that need most.
	First, End int
}

// Error names the memory, the layers, and the least memory that works.
func (e *MemoryError) Error() string {
	const mib = 1 << 20
	return fmt.Sprintf("memory %d MiB: layers %d to %d do not fit into a function however they are cut: give functions %d MiB",
		e.Memory/mib, e.First, e.End-1, int64(math.Ceil(float64(e.Least)/mib)))
}
