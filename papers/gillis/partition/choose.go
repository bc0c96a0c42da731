package partition

import (
	"fmt"
	"math"
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

// billed returns the billed time of the master and all workers.
func (x *search) billed(l *label) float64 {
	return x.platform.Billing.billed(l.time.Mean) + l.work
}
