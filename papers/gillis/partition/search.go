package partition

import (
	"cmp"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/papers/gillis/partition/delay"
)

// label is a sequence of rounds from the first layer on. It carries all that the latency,
// the cost and the memory of a plan that begins so depend on: latencies add up unrounded
// and are rounded up for billing at the end, as ⌈T/D⌉ is not a sum over rounds.
type label struct {
	time                 delay.Moments
	work                 float64
	weights, activations int64
	workers, parts       int
	// ticks, late and workTicks are the mean time, the latency by the percentile of the SLO,
	// and the work, in multiples of tick. Labels are compared by them, as sums of equal
	// terms in another order differ by less.
	ticks, late, workTicks int64
	// bound is the least objective of plans that begin so, as far as search knows.
	bound  float64
	round  *Round
	before *label
}

func (x *search) with(l *label, r *Round) label {
	n := label{
		time: l.time.Plus(r.Time), work: l.work + r.Work,
		weights: l.weights + r.Weights, activations: max(l.activations, r.Activations),
		workers: l.workers + r.Workers(), parts: l.parts + len(r.Option.Parts),
		round: r, before: l,
	}
	n.ticks, n.late, n.workTicks = ticks(n.time.Mean), ticks(x.latency(&n)), ticks(n.work)
	return n
}

func ticks(ms float64) int64 { return int64(math.Round(ms / tick)) }

// rounds lists the label's rounds.
func (l *label) rounds() []Round {
	var all []Round
	for ; l.round != nil; l = l.before {
		all = append(all, *l.round)
	}
	slices.Reverse(all)
	return all
}

// tied orders labels of the same costs: fewer parts first, then by the names of the last
// options in which they differ.
func tied(a, b *label) int {
	if c := cmp.Compare(a.parts, b.parts); c != 0 {
		return c
	}
	for a.round != nil && b.round != nil && a != b {
		if c := cmp.Or(cmp.Compare(a.round.Option.Name, b.round.Option.Name), cmp.Compare(a.round.First, b.round.First), cmp.Compare(a.round.Master, b.round.Master)); c != 0 {
			return c
		}
		a, b = a.before, b.before
	}
	return 0
}

// goal says what a search minimises and what it must keep.
type goal struct {
	// slo is the latency to keep; its Ms is infinite if the latency is what is minimised.
	// Its percentile also says which latency.
	slo SLO
	// cheapest minimises the cost instead of the latency.
	cheapest bool
}

// search looks for the best plan of a space: it extends labels layer by layer and drops
// those that another one dominates, and those that cannot become better than the best
// plan known. Bounds for the latter are Lagrangian relaxations; see tune.
type search struct {
	*Space
	goal
	// kept has, for each first layer, the rounds that no other one of their group
	// dominates.
	kept [][]*Round
	// limit has the maxima of the resources, infinite where there is none. least has, for
	// each layer, the least that the rounds from there on take of each.
	limit [resources]float64
	// excess is that of the SLO's percentile.
	excess delay.Excess
	least  [resources][]float64
	duals  []dual
	best   *label
}

func newSearch(s *Space, g goal) *search {
	x := &search{Space: s, goal: g, excess: delay.NewExcess(g.slo.Percentile, s.tail)}
	x.limit = [resources]float64{g.slo.Ms, math.Inf(1), math.Inf(1)}
	if !s.roomy(0, 0) {
		x.limit[ofWeights] = float64(s.platform.Memory())
	}
	if f := s.limits.Functions; f > 0 && 1+s.workers[0] > f {
		x.limit[ofWorkers] = float64(f - 1)
	}
	for first := range s.layers {
		var kept []*Round
		for _, rounds := range s.rounds[first] {
			labels := make([]*label, len(rounds))
			for i := range rounds {
				l := x.with(&label{}, &rounds[i])
				labels[i] = &l
			}
			for _, l := range x.undominated(labels, 0) {
				kept = append(kept, l.round)
			}
		}
		x.kept = append(x.kept, kept)
	}
	return x
}

// latency returns the latency of the label's rounds by the goal's percentile.
func (x *search) latency(l *label) float64 { return l.time.Mean + x.excess.Of(l.time.Variance) }

// compare orders labels of whole plans: by cost, then latency, or the other way round.
func (x *search) compare(a, b *label) int {
	cost := cmp.Compare(ticks(x.billed(a)), ticks(x.billed(b)))
	latency := cmp.Compare(a.late, b.late)
	if !x.cheapest {
		cost, latency = latency, cost
	}
	if c := cmp.Or(cost, latency); c != 0 {
		return c
	}
	return tied(a, b)
}

// offer makes a label of a whole plan the best one if it is.
func (x *search) offer(l *label) {
	if x.allowed(l, x.layers) && (x.best == nil || x.compare(l, x.best) < 0) {
		x.best = l
	}
}

// allowed reports whether a label up to the layer can still keep every limit.
func (x *search) allowed(l *label, layer int) bool {
	if l.weights+l.activations > x.platform.Memory() {
		return false
	}
	least := [resources]float64{}
	for i := range least {
		if x.least[i] != nil {
			least[i] = x.least[i][layer]
		}
	}
	if float64(l.weights)+least[ofWeights] > x.limit[ofWeights] || float64(l.workers)+least[ofWorkers] > x.limit[ofWorkers] {
		return false
	}
	return x.latency(l)+least[ofTime] <= x.slo.Ms+tick
}

// widths are the numbers of labels that run keeps at each layer, 0 for all. The first
// passes find a good plan, with which the last drops most labels.
var widths = []int{16, 256, 0}

// run returns the label of the best plan, or nil if none keeps the limits.
func (x *search) run() *label {
	x.relaxAll()
	for _, width := range widths {
		if !x.pass(width) {
			break
		}
	}
	return x.best
}

// pass extends labels from the first layer to the last. With a width it keeps the labels
// with the least bounds at each layer. It reports whether it dropped any for that.
func (x *search) pass(width int) (dropped bool) {
	open := make([][]*label, x.layers+1)
	open[0] = []*label{{}}
	for layer := range x.layers {
		labels := x.undominated(open[layer], layer)
		open[layer] = nil
		if width > 0 && len(labels) > width {
			slices.SortStableFunc(labels, func(a, b *label) int { return cmp.Compare(a.bound, b.bound) })
			labels, dropped = labels[:width], true
		}
		for _, l := range labels {
			if !x.promising(l.bound) {
				continue // A better plan was found after this label was made.
			}
			for _, r := range x.kept[layer] {
				next := x.with(l, r)
				if !x.allowed(&next, r.End) {
					continue
				}
				if next.bound = x.bound(&next, r.End); !x.promising(next.bound) {
					continue
				}
				if r.End == x.layers {
					x.offer(&next)
				} else {
					open[r.End] = append(open[r.End], &next)
				}
			}
		}
	}
	return dropped
}

// undominated sorts labels that end at the same layer and returns those that no other one
// dominates: that is no worse in anything that matters, and first in ties.
func (x *search) undominated(labels []*label, layer int) []*label {
	slices.SortFunc(labels, x.first)
	var kept []*label
	for _, l := range labels {
		found := -1
		for i := len(kept) - 1; i >= 0 && found < 0; i-- {
			if x.dominates(kept[i], l, layer) {
				found = i
			}
		}
		if found < 0 {
			kept = append(kept, l)
		}
	}
	return kept
}

// first orders labels that end at the same layer by what matters, and ties as in tied.
func (x *search) first(a, b *label) int {
	if c := cmp.Or(cmp.Compare(a.ticks, b.ticks), cmp.Compare(a.workTicks, b.workTicks)); c != 0 {
		return c
	}
	if c := cmp.Compare(a.late, b.late); c != 0 {
		return c
	}
	if !math.IsInf(x.limit[ofWeights], 1) {
		if c := cmp.Or(cmp.Compare(a.weights, b.weights), cmp.Compare(a.activations, b.activations)); c != 0 {
			return c
		}
	}
	if c := cmp.Compare(a.workers, b.workers); c != 0 && !math.IsInf(x.limit[ofWorkers], 1) {
		return c
	}
	return tied(a, b)
}

// dominates reports whether a is no worse than b, for a that sorts before b. A resource
// that can no longer reach its limit does not matter.
func (x *search) dominates(a, b *label, layer int) bool {
	if x.cheapest && a.workTicks > b.workTicks {
		return false
	}
	// A lower mean makes up for more variance if it does so now: what the variance adds to
	// the latency is concave, so its difference shrinks with the variance of later rounds.
	if a.late > b.late {
		return false
	}
	if !math.IsInf(x.limit[ofWorkers], 1) && a.workers > b.workers && a.workers+x.workers[layer] > int(x.limit[ofWorkers]) {
		return false
	}
	if math.IsInf(x.limit[ofWeights], 1) || x.roomy(layer, a.weights) {
		return true
	}
	return a.weights <= b.weights && a.activations <= b.activations
}
