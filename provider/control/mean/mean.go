// Package mean is how long executions take on average. Whether an objective is met
// depends on how long an execution may take; how many requests an instance serves, on
// how long one takes on average. The corrections of a profile say the first. For the
// second, the mean of what instances really take is kept for each CPU share, as a part of
// the profile's time.
package mean

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
// exec, that which it may take; 0 if nobody knows.
func (ms Means) Of(p *profiler.Profile, millicores, batch int, exec time.Duration) time.Duration {
	m := ms[millicores]
	if m == nil || m.weight < least {
		return 0
	}
	promised, ok := p.ExecTime(batch, millicores)
	if !ok {
		return 0
	}
	return min(exec, time.Duration(m.sum/m.weight*float64(promised)))
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
