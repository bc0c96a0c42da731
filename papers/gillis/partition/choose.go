package partition

import (
	"fmt"
	"math"

	"github.com/faas-infer/faas-infer/papers/gillis/partition/delay"
)

// Fastest returns the plan with the least latency that fits into functions (§IV-B): the
// mean latency for percentile 0. Of equally fast plans it returns the cheapest, then that
// with fewer parts, then by the options' names. The result is exact: it equals the recursion
// L(1, n, M) with all budgets b. It fails if the limit of functions allows no plan.
func (s *Space) Fastest(percentile float64) (Plan, error) {
	return s.plan(goal{slo: SLO{math.Inf(1), percentile}})
}

// Cheapest returns the plan with the least cost that keeps the SLO (Eq. 3). Of equally
// cheap plans it returns the fastest, then that with fewer parts, then by the options'
// names. The result is exact. It fails with an [SLOError] if no plan keeps the SLO, and if
// the limit of functions allows no plan.
func (s *Space) Cheapest(slo SLO) (Plan, error) {
	fastest, err := s.Fastest(slo.Percentile)
	if err != nil {
		return Plan{}, err
	}
	if ms := fastest.Time.At(slo.Percentile); !(ms <= slo.Ms+tick) {
		return Plan{}, &SLOError{slo, fastest, ms}
	}
	return s.plan(goal{slo, true})
}

func (s *Space) plan(g goal) (Plan, error) {
	best := newSearch(s, g).run()
	if best == nil {
		return Plan{}, fmt.Errorf("functions %d: no plan has that few with %g MiB each: allow more functions or more memory", s.limits.Functions, s.platform.MemoryMiB)
	}
	return NewPlan(s.platform, best.rounds()), nil
}

// Count returns the number of plans, whether they keep limits or not.
func (s *Space) Count() float64 {
	plans := make([]float64, s.layers+1)
	plans[s.layers] = 1
	for first := s.layers - 1; first >= 0; first-- {
		for i, rounds := range s.rounds[first] {
			plans[first] += float64(len(rounds)) * plans[first+i+1]
		}
	}
	return plans[0]
}

// Exhaustive returns the same plan as Cheapest, or as Fastest if the SLO's Ms is infinite,
// by trying all plans (BF, §V-C). It gives up a plan only when its first rounds alone are
// too slow, too large or dearer than a whole plan before. It fails after atMost rounds, and
// if no plan keeps the SLO.
func (s *Space) Exhaustive(slo SLO, atMost int) (Plan, error) {
	none := math.Inf(1)
	x := &search{Space: s, goal: goal{slo, !math.IsInf(slo.Ms, 1)}, excess: delay.NewExcess(slo.Percentile, s.tail), limit: [resources]float64{none, none, none}}
	if f := s.limits.Functions; f > 0 {
		x.limit[ofWorkers] = float64(f - 1)
	}
	left := atMost
	x.enumerate(&label{}, 0, &left)
	switch {
	case left < 0:
		return Plan{}, fmt.Errorf("exhaustive search: more than %d rounds of %.3g plans: restrict the options", atMost, s.Count())
	case x.best == nil:
		return Plan{}, fmt.Errorf("SLO %v: no plan keeps it", slo)
	}
	return NewPlan(s.platform, x.best.rounds()), nil
}

func (x *search) enumerate(l *label, layer int, left *int) {
	if *left--; *left < 0 || !x.allowed(l, layer) {
		return
	}
	if layer == x.layers {
		x.offer(l)
		return
	}
	if x.cheapest && x.best != nil && x.billed(l) > x.billed(x.best)+tick {
		return
	}
	for _, rounds := range x.rounds[layer] {
		for i := range rounds {
			next := x.with(l, &rounds[i])
			x.enumerate(&next, rounds[i].End, left)
		}
	}
}

// billed returns the billed time of the master and all workers.
func (x *search) billed(l *label) float64 {
	return x.platform.Billing.billed(l.time.Mean) + l.work
}

// fused is a model whose first layers are one.
type fused struct {
	Model
	first int
}

// Fuse returns the model with its first layers as one layer, so that no group ends inside:
// the release of Gillis searches VGG-11 exhaustively so, with six layers fused.
func Fuse(m Model, layers int) Model { return fused{m, layers - 1} }

// Layers counts the fused layers as one.
func (f fused) Layers() int { return f.Model.Layers() - f.first }

// Options returns those of the layers of the model.
func (f fused) Options(first, end int) []Option {
	if first > 0 {
		first += f.first
	}
	return f.Model.Options(first, end+f.first)
}
