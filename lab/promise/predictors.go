package promise

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
)

// prediction is a profile with its times by share, which are asked for again and again.
type prediction struct {
	profile *profiler.Profile
	tables  map[profiler.Share][]time.Duration
}

func newPrediction(p *profiler.Profile) prediction {
	return prediction{p, map[profiler.Share][]time.Duration{}}
}

// all lists the times of batches on a share. The caller must not change them.
func (p *prediction) all(on profiler.Share) []time.Duration {
	if p.tables[on] == nil {
		p.tables[on] = p.profile.Table(largest, on)
	}
	return p.tables[on]
}

// Profile returns the profile.
func (p *prediction) Profile() *profiler.Profile { return p.profile }

// times lists the times of batches up to n on a share, multiplied by a factor for each, such that they never
// decrease.
func (p *prediction) times(n int, on profiler.Share, by func(batch int) float64) []time.Duration {
	table := slices.Clone(p.all(on)[:n])
	last := time.Duration(1)
	for i := range table {
		last = max(last, time.Duration(by(i+1)*float64(table[i])))
		table[i] = last
	}
	return table
}

// assumed returns a profile with the time outside the engine that is assumed before any request, as the
// correction's is.
func assumed(p *profiler.Profile) *profiler.Profile {
	with := *p
	with.Beside = profiler.Beside{Batch: perBatch, Request: p.Payloads.JSON}
	return &with
}

// alone is a prediction that no execution changes. known, if it is not nil, multiplies its times.
type alone struct {
	prediction
	known func(now time.Time) float64
	by    float64
}

// newAlone returns the prediction with its own margin.
func newAlone(p *profiler.Profile) *alone {
	return &alone{prediction: newPrediction(assumed(p)), by: 1}
}

func (a *alone) Observe(time.Time, []correction.Observation) {}

func (a *alone) Update(now time.Time) (changed bool) {
	if a.known == nil {
		return false
	}
	by := a.known(now)
	changed = math.Abs(by-a.by) > 0.01*a.by
	a.by = by
	return changed
}

func (a *alone) Table(n int, on profiler.Share) []time.Duration {
	return a.times(n, on, func(int) float64 { return a.by })
}

// ewma keeps exponentially weighted means of the ratio of measured to predicted time and of its square, by share
// and class of batches. Its quantile is that of a normal distribution.
type ewma struct {
	prediction
	z       float64
	classes map[classKey]*moments
}

type classKey struct {
	profiler.Share
	class int
}

type moments struct{ weight, sum, squares float64 }

// newEWMA returns one without executions, which begins with the prediction.
func newEWMA(p *profiler.Profile, quantile float64) *ewma {
	return &ewma{newPrediction(assumed(p)), math.Sqrt2 * math.Erfinv(2*quantile-1), map[classKey]*moments{}}
}

func classOf(batch int) int { return bits.Len(uint(batch - 1)) }

func (e *ewma) Observe(_ time.Time, seen []correction.Observation) {
	const kept = 1 - 1.0/100
	for _, o := range seen {
		predicted := e.all(o.Share)[o.Batch-1]
		key := classKey{o.Share, classOf(o.Batch)}
		m := e.classes[key]
		if m == nil {
			m = &moments{}
			e.classes[key] = m
		}
		x := float64(o.Exec) / float64(predicted)
		m.weight, m.sum, m.squares = m.weight*kept+1, m.sum*kept+x, m.squares*kept+x*x
	}
}

func (e *ewma) Update(time.Time) bool { return true }

func (e *ewma) Table(n int, on profiler.Share) []time.Duration {
	return e.times(n, on, func(batch int) float64 {
		m := e.classes[classKey{on, classOf(batch)}]
		if m == nil || m.weight < 8 {
			return 1
		}
		mean := m.sum / m.weight
		return mean + e.z*math.Sqrt(max(0, m.squares/m.weight-mean*mean))
	})
}
