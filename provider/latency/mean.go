package latency

import (
	"math"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

const (
	// window is the number of executions after which 1/e of an older one's weight is
	// left; minWeight is the weight that a mean needs.
	window, minWeight = 500, 50
	// tolerance is the relative change of a mean below which candidates are not updated.
	tolerance = 0.02
)

// mean is the exponentially weighted ratio of two sums, of which weight executions are.
type mean struct{ took, promised, weight float64 }

func (m *mean) add(took, promised float64) {
	const kept = 1 - 1.0/window
	m.took, m.promised, m.weight = m.took*kept+took, m.promised*kept+promised, m.weight*kept+1
}

// Means holds, by share, the ratio of the times of one function's executions to the promised times, both in all. It is not
// the mean of their ratios: a batch of many requests counts as many, of which each takes its part. For example texts of two
// lengths take 10 and 100 ms, and 100 is promised for each. Batches of nine short ones and of one long one take turns: ten
// requests take 190 ms, for which 1000 are promised. The mean of both ratios would be 0.55.
type Means map[profiler.Share]*mean

// Observe adds an execution of a batch of size requests on a share. promised lists the promised
// times of batches of 1, 2, … requests.
func (ms Means) Observe(on profiler.Share, size int, took time.Duration, promised []time.Duration) {
	if size < 1 || size > len(promised) || took <= 0 {
		return
	}
	m := ms[on]
	if m == nil {
		m = &mean{}
		ms[on] = m
	}
	m.add(float64(took), float64(promised[size-1]))
}

// Of returns the mean time of a batch on a share, at most exec; 0 if it is unknown. exec
// is the time that the batch may take. A share with too few executions uses the mean of the
// share with the most, scaled by the profile's means of both. Times on the CPU say nothing of
// those on a GPU. Otherwise the larger share would
// count with exec and the smaller one with its mean, and the larger would seem no faster.
//
// For example, the profile's means are 40 ms at 250m and 20 ms at 500m. If 44 ms were observed
// at 250m, Of expects 22 ms at 500m.
func (ms Means) Of(p *profiler.Profile, on profiler.Share, batch int, exec time.Duration) time.Duration {
	if m := ms[on]; m.enough() {
		if promised, ok := p.ExecTime(batch, on); ok {
			return min(exec, m.of(promised))
		}
		return 0
	}
	surest := ms.surest(func(s profiler.Share) bool { return (s.GPU > 0) == (on.GPU > 0) })
	if !ms[surest].enough() {
		return 0
	}
	promised, known := p.ExecTime(batch, surest)
	there, ok := p.MeanTime(batch, surest)
	here, also := p.MeanTime(batch, on)
	if !known || !ok || !also {
		return 0
	}
	return min(exec, time.Duration(float64(ms[surest].of(promised))/float64(there)*float64(here)))
}

// enough reports whether the mean has enough weight.
func (m *mean) enough() bool { return m != nil && m.weight >= minWeight }

// of returns the mean time of executions with this promised time.
func (m *mean) of(promised time.Duration) time.Duration {
	return time.Duration(m.took / m.promised * float64(promised))
}

// Candidates returns the candidates with their present means. It returns the same slice if no
// mean has changed by more than tolerance.
func (ms Means) Candidates(p *profiler.Profile, of []capacity.Candidate) []capacity.Candidate {
	changed := false
	next := make([]capacity.Candidate, len(of))
	for i, c := range of {
		next[i] = c
		next[i].Mean = ms.Of(p, capacity.ShareOf(c.Config), c.Config.Batch, c.Exec)
		changed = changed || math.Abs(float64(next[i].Mean-c.Mean)) > tolerance*float64(c.Mean)
	}
	if changed {
		return next
	}
	return of
}

// Surest returns the share with the most weight, the smallest of equals; the zero Share if
// there were no executions.
func (ms Means) Surest() profiler.Share {
	return ms.surest(func(profiler.Share) bool { return true })
}

// surest is Surest among the shares for which counts holds.
func (ms Means) surest(counts func(profiler.Share) bool) (share profiler.Share) {
	most := 0.0
	for s, m := range ms {
		smaller := s.GPU < share.GPU || s.GPU == share.GPU && s.CPU < share.CPU
		if counts(s) && (m.weight > most || m.weight == most && smaller) {
			share, most = s, m.weight
		}
	}
	return share
}
