package learned

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/faas-infer/faas-infer/papers/gillis/partition"
)

// The release's Bayesian optimisation: ten random samples, then at most 60 chosen ones, each
// the best of ten searches. Two latencies in a row within 3 % end it.
const (
	begins   = 10
	samples  = 60
	searches = 10
	similar  = 0.03
	// uncut is the probability that a random action fuses a layer with the next one.
	uncut = 0.9
)

// optimiser is a run of Bayesian optimisation.
type optimiser struct {
	*encoding
	random *rand.Rand
	// points are the samples' actions; costs and latencies are what they led to.
	points           [][]int
	costs, latencies []float64
	best             Result
}

// Bayes learns a plan by Bayesian optimisation with the expected improvement (§V-C), after
// Cherrypick: two Gaussian processes with a Matérn 5/2 kernel model cost and latency, and
// the next sample has the greatest improvement of the cost times probability to keep the
// SLO. The master takes a part while it has memory. As in the release, two latencies in a
// row within 3 % end the search, and the result is the last sample. best is the best of all
// samples instead.
func Bayes(s *partition.Space, slo partition.SLO, seed uint64) (last, best Result) {
	o := &optimiser{encoding: newEncoding(s, slo), random: rand.New(rand.NewPCG(seed, 1))}
	for range begins {
		if p, ok := o.sample(o.actions()); ok {
			last = Result{Plan: p, Met: o.met(&p)}
		}
	}
	before := math.Inf(1)
	for range samples {
		p, ok := o.sample(o.propose())
		if !ok {
			continue
		}
		last = Result{Plan: p, Met: o.met(&p)}
		latency := o.latency(&p)
		if math.Abs(latency-before)/before < similar {
			break
		}
		before = latency
	}
	last.Plans = o.best.Plans
	return last, o.best
}

// sample evaluates actions. It returns false if they do not fit into memory.
func (o *optimiser) sample(actions []int) (partition.Plan, bool) {
	o.best.Plans++
	var rounds []partition.Round
	for _, g := range o.groups(actions) {
		options := o.rounds(g)
		r, ok := place(options, true)
		if ok {
			p := partition.NewPlan(o.space.Platform(), append(slices.Clone(rounds), r))
			ok = o.space.Fits(&p)
		}
		if !ok {
			if r, ok = place(options, false); !ok {
				return partition.Plan{}, false
			}
		}
		rounds = append(rounds, r)
	}
	p := partition.NewPlan(o.space.Platform(), rounds)
	if !o.space.Fits(&p) {
		return partition.Plan{}, false
	}
	o.points = append(o.points, actions)
	o.costs, o.latencies = append(o.costs, p.Cost), append(o.latencies, o.latency(&p))
	o.best = o.better(o.best, p)
	return p, true
}

// actions draws random actions.
func (o *optimiser) actions() []int {
	all := make([]int, len(o.sizes))
	for i := range all {
		if o.random.Float64() >= uncut {
			all[i] = 1 + o.random.IntN(len(o.names))
		}
	}
	return all
}

// propose returns the actions with the greatest acquisition that searches from random
// actions find. A search changes one layer's action at a time as long as that helps.
func (o *optimiser) propose() []int {
	if len(o.points) == 0 {
		return o.actions()
	}
	cost, latency := fit(o.points, o.costs), fit(o.points, o.latencies)
	least := math.Inf(1)
	for i, c := range o.costs {
		if o.latencies[i] <= o.slo.Ms {
			least = min(least, c)
		}
	}
	acquisition := func(actions []int) float64 {
		mean, deviation := latency.at(actions)
		value := normal((o.slo.Ms - mean) / max(deviation, 1e-9))
		if !math.IsInf(least, 1) {
			mean, deviation = cost.at(actions)
			value *= improvement(least-mean, deviation)
		}
		return value
	}
	var chosen []int
	best := math.Inf(-1)
	for range searches {
		actions := o.actions()
		value := acquisition(actions)
		for improved := true; improved; {
			improved = false
			for i := range actions {
				for k := range len(o.names) + 1 {
					was := actions[i]
					actions[i] = k
					if v := acquisition(actions); v > value*(1+1e-9) {
						value, improved = v, true
					} else {
						actions[i] = was
					}
				}
			}
		}
		if value > best {
			chosen, best = actions, value
		}
	}
	return chosen
}

// improvement returns the expected improvement of a normal whose mean improves by gain.
func improvement(gain, deviation float64) float64 {
	if deviation == 0 {
		return max(0, gain)
	}
	z := gain / deviation
	return gain*normal(z) + deviation*math.Exp(-z*z/2)/math.Sqrt(2*math.Pi)
}

func normal(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }
