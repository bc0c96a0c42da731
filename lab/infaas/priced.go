package infaas

import (
	"cmp"
	"errors"
	"math"
	"slices"
)

// rounds is the number of times that prices change, and patience the number of rounds without
// a better bound after which the steps are halved.
const (
	rounds   = 150
	patience = 8
	// pricedWork is the maximum number of steps for one application in one round.
	pricedWork = 20_000
)

// priced is the search for the prices on the resources that give the highest bound. If a unit
// of each resource costs its price, applications are independent, and the sum of their costs
// less the price of all resources is at most the cost of every plan (Lagrange).
type priced struct {
	*Program
	prices, best []float64 // the present prices, and those of the highest bound
	bound        float64
	// counts and value are of the best plan within the limits; value is +Inf without one.
	counts [][]int
	value  float64
}

// coupled is Solve where the limits bind.
func (p *Program) coupled() (Plan, error) {
	s := &priced{Program: p, prices: make([]float64, len(p.Limits)), bound: math.Inf(-1), value: math.Inf(1)}
	s.ascend()
	if s.counts == nil {
		s.raise()
	}
	if s.combine() {
		s.bound = s.value
	}
	if s.counts == nil {
		return Plan{}, errors.New("no plan for all loads was found within the limits: raise a limit or lower a load")
	}
	return p.plan(s.counts, s.bound), nil
}

// evaluate answers the present prices. It returns what is used beyond each limit, as a part of
// the limit, and keeps a better bound and a better plan.
func (s *priced) evaluate() (over []float64, better bool) {
	counts, bound, err := s.respond(s.prices, pricedWork)
	if err != nil {
		return nil, false // Solve has asked before, with prices of 0.
	}
	over = make([]float64, len(s.Limits))
	for a := range counts {
		uses(&s.Applications[a], counts[a], over)
	}
	inside := true
	for k, limit := range s.Limits {
		bound -= s.prices[k] * limit
		inside = inside && over[k] <= limit*(1+tolerance)
		over[k] = (over[k] - limit) / scale(limit)
	}
	if better = bound > s.bound+tolerance*math.Abs(bound); better {
		s.bound, s.best = bound, slices.Clone(s.prices)
	}
	if inside {
		s.offer(counts)
	}
	return over, better
}

// scale is the unit in which a limit's prices move.
func scale(limit float64) float64 {
	if limit > 0 {
		return limit
	}
	return 1
}

// offer keeps a plan within the limits if it is better than the best.
func (s *priced) offer(counts [][]int) {
	cost := 0.0
	for a := range counts {
		cost += s.price(a, counts[a])
	}
	if cost < s.value-tolerance*cost {
		s.counts, s.value = counts, cost
	}
}

// ascend moves the prices towards a higher bound: a price rises where more is used than there
// is, by steps that Polyak's rule sizes.
func (s *priced) ascend() {
	step, idle := 1.0, 0
	for range rounds {
		over, better := s.evaluate()
		if idle++; better {
			idle = 0
		}
		if idle == patience {
			step, idle = step/2, 0
			copy(s.prices, s.best)
		}
		norm := 0.0
		for k := range over {
			if s.prices[k] > 0 || over[k] > 0 {
				norm += over[k] * over[k]
			}
		}
		aim := s.value
		if math.IsInf(aim, 1) {
			aim = 1.1*math.Abs(s.bound) + 1
		}
		if norm == 0 || step < 1e-3 || aim-s.bound <= tolerance*aim {
			break
		}
		for k := range over {
			s.prices[k] = max(0, s.prices[k]+step*(aim-s.bound)/norm*over[k]/scale(s.Limits[k]))
		}
	}
	copy(s.prices, s.best)
}

// raise looks for any plan within the limits: prices rise where too much is used.
func (s *priced) raise() {
	for range rounds {
		over, _ := s.evaluate()
		if s.counts != nil {
			break
		}
		for k := range over {
			if over[k] > tolerance {
				s.prices[k] = 1.2*s.prices[k] + 0.01*max(1, math.Abs(s.bound))/scale(s.Limits[k])
			}
		}
	}
	copy(s.prices, s.best)
}

// column is one way to serve an application.
type column struct {
	counts []int
	// reduced is the cost at the prices beyond the application's least, cost the true one.
	reduced, cost float64
	needs         []float64
}

// maxColumns is the maximum number of columns of an application.
const maxColumns = 400

// columns lists an application's ways to serve its load whose reduced costs are at most gap,
// the least first. It returns false if there are more than it lists.
func (s *priced) columns(a int, gap float64) ([]column, bool) {
	app := &s.Applications[a]
	c := newCover(app, s.Lambda, s.best)
	_, least := c.solve(pricedWork)
	all := lister{cover: wholeCover(app, s.Lambda, s.best), ceiling: least + gap}
	all.list(0, app.Load, 0)
	cols := make([]column, 0, len(all.found))
	for _, n := range all.found {
		col := column{counts: n, cost: s.price(a, n), needs: make([]float64, len(s.Limits))}
		uses(app, n, col.needs)
		col.reduced = col.cost - least
		for k, need := range col.needs {
			col.reduced += s.best[k] * need
		}
		cols = append(cols, col)
	}
	slices.SortFunc(cols, func(a, b column) int {
		return cmp.Or(cmp.Compare(a.reduced, b.reduced), slices.Compare(a.counts, b.counts))
	})
	cols = undominated(cols)
	complete := all.work <= listWork
	if len(cols) > maxColumns {
		cols, complete = cols[:maxColumns], false
	}
	return cols, complete
}

// undominated leaves out columns for which another one costs and needs no more. They are
// sorted.
func undominated(cols []column) []column {
	var kept []column
	for _, c := range cols {
		if !slices.ContainsFunc(kept, func(k column) bool { return noMore(&k, &c) }) {
			kept = append(kept, c)
			if len(kept) > 4*maxColumns {
				break
			}
		}
	}
	return kept
}

func noMore(a, b *column) bool {
	if a.cost > b.cost {
		return false
	}
	for k := range a.needs {
		if a.needs[k] > b.needs[k] {
			return false
		}
	}
	return true
}

// lister lists the counts that serve a load at a cost of at most ceiling.
type lister struct {
	*cover
	ceiling float64
	found   [][]int
}

// listWork is the maximum number of steps of a list.
const listWork = 20_000

func (l *lister) list(i int, left, cost float64) {
	it := &l.items[i]
	for n := min(it.most, instances(left, it.rate)); n >= 0; n-- {
		if l.work++; l.work > listWork {
			break
		}
		now, rest := cost+float64(n)*it.cost, left-float64(n)*it.rate
		l.taken[i] = n
		if rest <= tolerance*l.need {
			if now <= l.ceiling*(1+tolerance) {
				l.found = append(l.found, l.counts(l.taken))
			}
			continue
		}
		if i+1 == len(l.items) || now+rest*l.items[i+1].ratio > l.ceiling*(1+tolerance) {
			break
		}
		l.list(i+1, rest, now)
	}
	l.taken[i] = 0
}
