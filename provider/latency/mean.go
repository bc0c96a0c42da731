package latency

import (
	"math"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

const (
	// window is after how many executions 1/e of an old one's weight is left, least
	// how many a mean needs.
	window, least = 500, 50
	// same is the part of a mean by which it may be off before the engine is told.
	same = 0.02
)

// mean is that of numbers of which the later count more.
type mean struct{ sum, weight float64 }

func (m *mean) add(x float64) {
	const kept = 1 - 1.0/window
	m.sum, m.weight = m.sum*kept+x, m.weight*kept+1
}

// Means are those of one function, by CPU share.
type Means map[int]*mean

// Observe takes in an execution of a batch of size on a share, for which these times
// were promised.
func (ms Means) Observe(millicores, size int, took time.Duration, promised []time.Duration) {
	if size < 1 || size > len(promised) || took <= 0 {
		return
	}
	m := ms[millicores]
	if m == nil {
		m = &mean{}
		ms[millicores] = m
	}
	m.add(float64(took) / float64(promised[size-1]))
}

// Of is the time that a batch takes on average on a CPU share, which is no longer than
// exec, that which it may take; 0 if nobody knows. A share that has not shown enough is
// judged by the one that has shown most, in proportion to what the profile says of both:
// otherwise a larger share, which counts with the longest time that it may take, would
// seem to serve no more than the smaller one, which counts with its mean.
//
// For example 10 ms of work take 40 ms at 250m and 20 ms at 500m by the profile, as a
// mean, and 44 ms were seen at 250m: then 22 ms are expected at 500m.
func (ms Means) Of(p *profiler.Profile, millicores, batch int, exec time.Duration) time.Duration {
	if m := ms[millicores]; m.enough() {
		if promised, ok := p.ExecTime(batch, millicores); ok {
			return min(exec, m.of(promised))
		}
		return 0
	}
	surest := ms.Surest()
	if !ms[surest].enough() {
		return 0
	}
	promised, known := p.ExecTime(batch, surest)
	there, ok := p.MeanTime(batch, surest)
	here, also := p.MeanTime(batch, millicores)
	if !known || !ok || !also {
		return 0
	}
	return min(exec, time.Duration(float64(ms[surest].of(promised))/float64(there)*float64(here)))
}

// enough reports whether the mean is one of enough executions.
func (m *mean) enough() bool { return m != nil && m.weight >= least }

// of is the mean of executions for which so much was promised.
func (m *mean) of(promised time.Duration) time.Duration {
	return time.Duration(m.sum / m.weight * float64(promised))
}

// Candidates are candidates with the means of now; the very same, if these have not
// changed.
func (ms Means) Candidates(p *profiler.Profile, of []capacity.Candidate) []capacity.Candidate {
	changed := false
	next := make([]capacity.Candidate, len(of))
	for i, c := range of {
		next[i] = c
		next[i].Mean = ms.Of(p, c.Config.CPU, c.Config.Batch, c.Exec)
		changed = changed || math.Abs(float64(next[i].Mean-c.Mean)) > same*float64(c.Mean)
	}
	if changed {
		return next
	}
	return of
}

// Surest is the CPU share of which most was seen, the smallest of several; 0 if nothing
// was.
func (ms Means) Surest() int {
	share, most := 0, 0.0
	for millicores, m := range ms {
		if m.weight > most || m.weight == most && millicores < share {
			share, most = millicores, m.weight
		}
	}
	return share
}
