// Package learned has the two learners that Gillis (ICDCS 2021) compares for plans that keep
// an SLO at the least cost: reinforcement learning (§IV-C3) and Bayesian optimisation
// (§V-C). They are for comparison only: [partition.Space.Cheapest] is exact. Both are seeded,
// so that a run can be repeated. Begin at [Reinforce] and [Bayes].
package learned

import (
	"slices"

	"github.com/faas-infer/faas-infer/papers/gillis/partition"
)

// Result is what a learner found.
type Result struct {
	// Plan is its plan. It has no rounds if the learner found none that fits into memory.
	Plan partition.Plan
	// Met reports whether the plan keeps the SLO.
	Met bool
	// Plans is the number of plans that the learner tried.
	Plans int
}

// judge compares plans by the SLO: those that keep it first, by cost, then the others, by
// latency.
type judge struct {
	space *partition.Space
	slo   partition.SLO
}

func (j *judge) latency(p *partition.Plan) float64 { return p.Time.At(j.slo.Percentile) }

func (j *judge) met(p *partition.Plan) bool {
	return len(p.Rounds) > 0 && j.space.Fits(p) && j.latency(p) <= j.slo.Ms
}

// better returns the better of a result and another plan.
func (j *judge) better(r Result, p partition.Plan) Result {
	met := j.met(&p)
	switch {
	case len(p.Rounds) == 0 || !j.space.Fits(&p):
		return r
	case len(r.Plan.Rounds) > 0 && r.Met != met:
		if r.Met {
			return r
		}
	case len(r.Plan.Rounds) > 0 && met && r.Plan.Cost <= p.Cost:
		return r
	case len(r.Plan.Rounds) > 0 && !met && j.latency(&r.Plan) <= j.latency(&p):
		return r
	}
	return Result{p, met, r.Plans}
}

// encoding writes plans as one action for each layer, as the release does: 0 fuses the layer
// with the next one, and k ends a group that is cut by the k-th option's name.
type encoding struct {
	judge
	names []string
	// sizes has the weights of each layer in bytes, and total is their sum.
	sizes []float64
	total float64
}

// group is a group of layers with the name of its option.
type group struct {
	first, end int
	name       int
}

func newEncoding(s *partition.Space, slo partition.SLO) *encoding {
	e := &encoding{judge: judge{s, slo}, sizes: make([]float64, s.Layers())}
	for length := 1; length <= s.Layers(); length++ {
		for first := 0; first+length <= s.Layers(); first++ {
			for _, r := range s.Rounds(first, first+length) {
				if !slices.Contains(e.names, r.Option.Name) {
					e.names = append(e.names, r.Option.Name)
				}
				if length == 1 {
					e.sizes[first] = max(e.sizes[first], weights(&r))
				}
			}
		}
	}
	for _, size := range e.sizes {
		e.total += size
	}
	e.total = max(e.total, 1)
	return e
}

// weights returns the bytes of weights of a round's largest part.
func weights(r *partition.Round) float64 {
	largest := int64(0)
	for i := range r.Option.Parts {
		largest = max(largest, r.Option.Parts[i].Weights)
	}
	return float64(largest)
}

// groups reads actions. The last layer always ends a group. Layers that cannot be grouped
// become several groups, of which all but the last are not cut.
func (e *encoding) groups(actions []int) []group {
	var all []group
	first := 0
	for i, action := range actions {
		if action == 0 && i+1 < len(actions) {
			continue
		}
		for first <= i {
			end := i + 1
			for end > first+1 && len(e.space.Rounds(first, end)) == 0 {
				end--
			}
			g := group{first, end, -1}
			if end == i+1 {
				g.name = action - 1
			}
			all = append(all, g)
			first = end
		}
	}
	return all
}

// rounds returns the group's rounds with its option, or uncut if it cannot be cut so. It
// returns none if the group does not fit into functions.
func (e *encoding) rounds(g group) []partition.Round {
	all := e.space.Rounds(g.first, g.end)
	only := func(ok func(o *partition.Option) bool) []partition.Round {
		return slices.DeleteFunc(slices.Clone(all), func(r partition.Round) bool { return !ok(r.Option) })
	}
	if g.name >= 0 {
		if named := only(func(o *partition.Option) bool { return o.Name == e.names[g.name] }); len(named) > 0 {
			return named
		}
	}
	return only(func(o *partition.Option) bool { return len(o.Parts) == 1 })
}

// place returns the fastest of the rounds with or without a part on the master, and false
// if there is none.
func place(rounds []partition.Round, master bool) (partition.Round, bool) {
	var best *partition.Round
	for i := range rounds {
		r := &rounds[i]
		if (r.Master != partition.Nobody) == master && (best == nil || r.Time.Mean < best.Time.Mean) {
			best = r
		}
	}
	if best == nil {
		return partition.Round{}, false
	}
	return *best, true
}
