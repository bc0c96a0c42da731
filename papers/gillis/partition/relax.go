package partition

import (
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/papers/gillis/partition/delay"
)

// The resources of a plan that are limited.
const (
	ofTime    = iota // the mean latency in ms, by the SLO
	ofWeights        // the bytes of weights on the master, by its memory
	ofWorkers        // the workers, by the limit of functions
	resources
)

// use returns what a round takes of each resource.
func use(r *Round) [resources]float64 {
	return [resources]float64{r.Time.Mean, float64(r.Weights), float64(r.Workers())}
}

// dual is a relaxation: the limits are lifted, and each resource has a price instead.
type dual struct {
	prices [resources]float64
	// rest has, for each layer, the least objective and prices of the rounds from there on.
	rest []float64
	// value bounds the objective of every plan from below.
	value float64
}

// maxDuals is the number of relaxations that bound labels.
const maxDuals = 8

// objective is what is minimised, as a sum over rounds that is never above the true one:
// the mean latency for a percentile, and unrounded time for billed time.
func (x *search) objective(t delay.Moments, work float64) float64 {
	if x.cheapest {
		return t.Mean + work
	}
	return t.Mean
}

// relax finds the plan with the least weighted objective and prices, and offers it. It
// returns that least sum for the rounds from each layer on, and the plan, nil if there is
// none.
func (x *search) relax(weight float64, prices [resources]float64) ([]float64, *label) {
	rest, choice := make([]float64, x.layers+1), make([]*Round, x.layers)
	for layer := x.layers - 1; layer >= 0; layer-- {
		rest[layer] = math.Inf(1)
		for _, r := range x.kept[layer] {
			sum := weight*x.objective(r.Time, r.Work) + rest[r.End]
			for i, u := range use(r) {
				sum += prices[i] * u
			}
			if sum < rest[layer] {
				rest[layer], choice[layer] = sum, r
			}
		}
	}
	l := &label{}
	for layer := 0; layer < x.layers; layer = l.round.End {
		if choice[layer] == nil {
			return rest, nil
		}
		next := x.with(l, choice[layer])
		l = &next
	}
	x.offer(l)
	return rest, l
}

// relaxAll finds bounds and a first plan.
func (x *search) relaxAll() {
	for i := range x.least {
		var prices [resources]float64
		prices[i] = 1
		// Sums in another order must not make a bound exceed what it bounds.
		rest, _ := x.relax(0, prices)
		for j := range rest {
			rest[j] -= 1e-9 * math.Abs(rest[j])
		}
		x.least[i] = rest
	}
	var limited []int
	for i, l := range x.limit {
		if !math.IsInf(l, 1) {
			limited = append(limited, i)
		}
	}
	x.tune(&[resources]float64{}, limited)
}

// tune finds prices with which the relaxation's plan just keeps its limits: they give the
// highest bounds, and good plans. It halves the range of one price after another, each
// time with the best of those after it.
func (x *search) tune(prices *[resources]float64, limited []int) *label {
	if len(limited) == 0 {
		rest, l := x.relax(1, *prices)
		if l != nil {
			x.add(dual{prices: *prices, rest: rest})
		}
		return l
	}
	i := limited[0]
	within := func(price float64) (*label, bool) {
		prices[i] = price
		l := x.tune(prices, limited[1:])
		return l, l == nil || taken(l)[i] <= x.limit[i]
	}
	l, ok := within(0)
	if ok {
		return l
	}
	low, high := 0.0, x.objective(l.time, l.work)/max(1, x.limit[i])
	for range 12 {
		if _, ok = within(high); ok {
			break
		}
		low, high = high, 8*high
	}
	for range 12 {
		mid := (low + high) / 2
		if _, ok := within(mid); ok {
			high = mid
		} else {
			low = mid
		}
	}
	l, _ = within(high)
	return l
}

// taken returns what a label takes of the resources.
func taken(l *label) [resources]float64 {
	return [resources]float64{l.time.Mean, float64(l.weights), float64(l.workers)}
}

// add keeps a relaxation if it is among the best.
func (x *search) add(d dual) {
	d.value = d.rest[0]
	for i, price := range d.prices {
		if price > 0 {
			d.value -= price * x.limit[i]
		}
	}
	at, found := slices.BinarySearchFunc(x.duals, d, func(a, b dual) int {
		if a.value > b.value {
			return -1
		} else if a.value < b.value {
			return 1
		}
		return 0
	})
	if found {
		return
	}
	x.duals = slices.Insert(x.duals, at, d)
	x.duals = x.duals[:min(len(x.duals), maxDuals)]
}

// bound returns the least objective of plans that begin with the label.
func (x *search) bound(l *label, layer int) float64 {
	took, bound := taken(l), math.Inf(-1)
	took[ofTime] = x.latency(l)
	for i := range x.duals {
		d := &x.duals[i]
		sum := d.rest[layer]
		for i, price := range d.prices {
			if price > 0 {
				sum += price * (took[i] - x.limit[i])
			}
		}
		bound = max(bound, sum)
	}
	if x.cheapest {
		bound += x.objective(l.time, l.work)
	} else {
		bound += took[ofTime]
	}
	if bound -= tick + 1e-9*math.Abs(bound); x.cheapest {
		bound = x.platform.Billing.billed(bound)
	}
	return bound
}

// promising reports whether a plan with this bound may be no worse than the best one known.
func (x *search) promising(bound float64) bool {
	switch {
	case x.best == nil:
		return true
	case x.cheapest:
		return bound <= x.billed(x.best)
	}
	return bound <= x.latency(x.best)
}
