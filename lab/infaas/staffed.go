package infaas

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// staffing searches the cheapest pool of instances in which requests that come at random are
// in time.
type staffing struct {
	app     *Application
	slo     time.Duration
	late    float64
	lambda  float64
	options []int // by cost per request
	// alone[i] is how many instances of options[i] do without others.
	alone []int
	pool  []capacity.Server
	best  []int
	value float64
	work  int
}

// staffWork is the maximum number of pools that are looked at, some 50 ms.
const staffWork = 200_000

// Staffed returns the counts at the least cost with which at most 1 % of the requests of an
// application miss an objective, where its load comes at random (Poisson) to one queue. INFaaS'
// slack is not needed: the chance of waiting is calculated ([capacity.Unlucky]). It tries
// mixtures of variants by cost, up to a fixed amount of work. It returns nil if no number of
// instances of a variant is enough.
func Staffed(app *Application, slo time.Duration, lambda float64) []int {
	s := &staffing{app: app, slo: slo, lambda: lambda, late: capacity.Late(0), value: math.Inf(1)}
	if app.Load <= 0 {
		return make([]int, len(app.Options))
	}
	for i := range app.Options {
		if app.Options[i].serves(app.Load) && !s.replaced(i) {
			s.options = append(s.options, i)
		}
	}
	slices.SortStableFunc(s.options, func(a, b int) int {
		x, y := &app.Options[a], &app.Options[b]
		return cmp.Or(cmp.Compare(x.Cost/x.Rate, y.Cost/y.Rate), cmp.Compare(y.Rate, x.Rate))
	})
	s.pool = make([]capacity.Server, len(s.options))
	for at, i := range s.options {
		s.pool[at] = capacity.Server{Exec: app.Options[i].Latency, Rate: app.Options[i].Rate}
	}
	for at := range s.options {
		s.alone = append(s.alone, s.staff(at))
	}
	s.descend(0, 0, 0)
	return s.best
}

// replaced reports whether an option has another one that is as fast, has the same rate or
// more, and costs no more, loaded or not.
func (s *staffing) replaced(i int) bool {
	o := &s.app.Options[i]
	loaded := func(x *Option) float64 { return x.Cost * (1 + s.lambda*x.Loading) }
	for k := range s.app.Options {
		if x := &s.app.Options[k]; k != i && x.Rate >= o.Rate && x.Latency <= o.Latency && loaded(x) <= o.Cost &&
			(x.Rate > o.Rate || x.Latency < o.Latency || loaded(x) < o.Cost || k < i) {
			return true
		}
	}
	return false
}

// staff finds how many instances of one option are enough without others, and keeps that as a
// plan. It returns 0 if no number is.
func (s *staffing) staff(at int) int {
	o := &s.app.Options[s.options[at]]
	most := instances(s.app.Load, o.Rate)
	enough := func(n int) bool {
		s.pool[at].Count = n
		defer func() { s.pool[at].Count = 0 }()
		return capacity.Unlucky(s.pool[at:at+1], s.app.Load, s.slo) <= s.late
	}
	for !enough(most) {
		if most = 2*most + 1; most > maxInstances {
			return 0
		}
	}
	n := 1 + sort.Search(most-1, func(n int) bool { return enough(n + 1) })
	s.pool[at].Count = n
	s.offer()
	s.pool[at].Count = 0
	return n
}

// offer keeps the pool if it is cheaper than the best.
func (s *staffing) offer() {
	if cost := s.cost(); cost < s.value*(1-tolerance) {
		s.best, s.value = make([]int, len(s.app.Options)), cost
		for at, i := range s.options {
			s.best[i] = s.pool[at].Count
		}
	}
}

func (s *staffing) cost() float64 {
	sum := 0.0
	for at, i := range s.options {
		sum += s.app.Options[i].Price(s.pool[at].Count, s.lambda)
	}
	return sum
}

// descend tries all counts of the options from the at-th on. The pool so far has a rate and
// a cost. The capacity must exceed the load, so what is missing costs at least as much per
// request as the next option.
func (s *staffing) descend(at int, rate, cost float64) {
	if rate > s.app.Load && capacity.Unlucky(s.pool, s.app.Load, s.slo) <= s.late {
		s.offer()
		return
	}
	if at == len(s.options) {
		return
	}
	o := &s.app.Options[s.options[at]]
	for n := s.alone[at]; n >= 0; n-- {
		if s.work++; s.work > staffWork {
			break
		}
		now, total := cost+o.Price(n, s.lambda), rate+float64(n)*o.Rate
		bound := now
		if at+1 < len(s.options) {
			next := &s.app.Options[s.options[at+1]]
			bound += max(0, s.app.Load-total) * next.Cost / next.Rate
		}
		if bound >= s.value*(1-tolerance) {
			if total < s.app.Load {
				break // Fewer of this option cost more: the others are dearer per request.
			}
			continue
		}
		s.pool[at].Count = n
		s.descend(at+1, total, now)
	}
	s.pool[at].Count = 0
}
