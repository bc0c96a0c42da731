package regression

import (
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/profiler"
)

// evidence is one operator's times in one setting. Every operator has the same weight,
// whatever its number of batches. Every time counts by its relative error.
type evidence struct {
	family string
	terms  []vector
	times  []float64
	work   []float64 // CPU time
	p95    []float64
	// wall and cpu are the equations terms·weights = time.
	wall, cpu system
}

func newEvidence(s *subject, i int) *evidence {
	e := &evidence{family: s.family}
	for _, p := range s.curves[i] {
		f, known := s.features[p.batch]
		if !known || !(p.estimate.Median > 0) {
			continue
		}
		e.terms = append(e.terms, lawTerms(f))
		e.times, e.work = append(e.times, p.estimate.Median), append(e.work, p.estimate.CPU)
		e.p95 = append(e.p95, p.estimate.P95/p.estimate.Median)
	}
	weight := 1 / math.Sqrt(float64(len(e.terms)))
	for k, x := range e.terms {
		for j := range x {
			x[j] *= weight / e.times[k]
		}
		e.wall.add(x, weight)
		e.cpu.add(x, weight*e.work[k]/e.times[k])
	}
	return e
}

// residuals are log(measured/fitted) of the weights w.
func (e *evidence) residuals(w vector) []float64 {
	var all []float64
	for k, x := range e.terms {
		all = append(all, math.Log(e.times[k]/x.dot(w)))
	}
	return all
}

// plus is the system of the observations of both.
func (s system) plus(t *system) system {
	for i := range s.squares {
		for j := range s.squares[i] {
			s.squares[i][j] += t.squares[i][j]
		}
		s.products[i] += t.products[i]
	}
	return s
}

// fit is a law and its errors, as log(measured/fitted).
type fit struct {
	law
	// off is the median error at each operator. residuals are all errors at an
	// operator of the law that is fitted without it. For families that are apart they are those of
	// the law itself: a run is measured at a few sizes, of which the smallest alone tells the
	// constant and the largest alone what a byte costs, so the law without it knows nothing of it.
	off       map[*evidence]float64
	residuals map[*evidence][]float64
}

func newFit(members []*evidence, threads float64) *fit {
	f := &fit{off: map[*evidence]float64{}, residuals: map[*evidence][]float64{}}
	// before[k] and after[k] are the sums over the first k members and over
	// those from k on. So a sum without one member needs no subtraction, which
	// could leave only rounding errors.
	n := len(members)
	before, after := make([]system, n+1), make([]system, n+1)
	var cpu system
	var p95 []float64
	for k, e := range members {
		before[k+1] = before[k].plus(&e.wall)
		after[n-1-k] = after[n-k].plus(&members[n-1-k].wall)
		cpu = cpu.plus(&e.cpu)
		p95 = append(p95, e.p95...)
	}
	f.wall, f.law.cpu, f.law.p95 = before[n].solve(), cpu.solve(), profiler.Quantile(p95, 0.5)
	f.law.threads = threads
	for k, e := range members {
		without := f.wall
		if !slices.Contains(apart, e.family) {
			others := before[k].plus(&after[k+1])
			without = others.solve()
		}
		f.residuals[e] = e.residuals(without)
		f.off[e] = profiler.Quantile(e.residuals(f.wall), 0.5)
	}
	return f
}

// scaledTo is the law scaled to members, which are some or all of its own, and its error:
// the mean of |log|. The error is infinite for a single member.
func (f *fit) scaledTo(members []*evidence) (*law, float64) {
	var offs []float64
	for _, e := range members {
		offs = append(offs, f.off[e])
	}
	off := finiteOr(profiler.Quantile(offs, 0.5), 0)
	l := f.law
	for k := range terms {
		l.wall[k] *= math.Exp(off)
		l.cpu[k] *= math.Exp(off)
	}
	l.margin = alone
	if len(members) < 2 {
		return &l, math.Inf(1)
	}
	total, above := 0.0, []float64{}
	for k, e := range members {
		others := slices.Delete(slices.Clone(offs), k, k+1)
		for _, r := range f.residuals[e] {
			r -= finiteOr(profiler.Quantile(others, 0.5), 0)
			total += math.Abs(r)
			above = append(above, math.Exp(r)-1)
		}
	}
	l.margin = min(widest, max(profiler.Margin, profiler.Quantile(above, 0.9)))
	return &l, total / float64(len(above))
}

func finiteOr(x, otherwise float64) float64 {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return otherwise
	}
	return x
}
