package control

import (
	"math"
	"time"

	"github.com/faas-infer/faas-infer/scaling"
)

// Whether an objective is met depends on how long an execution may take; how many
// requests an instance serves, on how long one takes on average. The corrections
// say the first. For the second, the mean of what instances really take is kept
// for each CPU share, as a part of the profile's time.

const (
	// meanWindow is after how many executions 1/e of an old one's weight is
	// left, meanLeast how many a mean needs.
	meanWindow, meanLeast = 500, 50
	// sameMean is the part of a mean by which it may be off before the engine is
	// told.
	sameMean = 0.02
)

// mean is that of numbers of which the later count more.
type mean struct{ sum, weight float64 }

func (m *mean) add(x float64) {
	const kept = 1 - 1.0/meanWindow
	m.sum, m.weight = m.sum*kept+x, m.weight*kept+1
}

// observeMean takes in an execution of a batch of size on in.
func (fn *function) observeMean(in *instance, size int, took time.Duration) {
	if size < 1 || size > len(in.promised) || took <= 0 {
		return
	}
	m := fn.means[in.Config.CPU]
	if m == nil {
		m = &mean{}
		fn.means[in.Config.CPU] = m
	}
	m.add(float64(took) / float64(in.promised[size-1]))
}

// mean is the time that a batch takes on average on a CPU share, which is no longer
// than exec, that which it may take; 0 if nobody knows.
func (fn *function) mean(millicores, batch int, exec time.Duration) time.Duration {
	m := fn.means[millicores]
	if m == nil || m.weight < meanLeast {
		return 0
	}
	promised, ok := fn.profile.ExecTime(batch, millicores)
	if !ok {
		return 0
	}
	return min(exec, time.Duration(m.sum/m.weight*float64(promised)))
}

// remean gives the candidates the means of now, where they have changed.
func (fn *function) remean() {
	changed := false
	next := make([]scaling.Candidate, len(fn.candidates))
	for i, c := range fn.candidates {
		next[i] = c
		next[i].Mean = fn.mean(c.Config.CPU, c.Config.Batch, c.Exec)
		changed = changed || math.Abs(float64(next[i].Mean-c.Mean)) > sameMean*float64(c.Mean)
	}
	if changed {
		fn.candidates = next
	}
}
