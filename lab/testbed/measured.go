package testbed

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
)

// Measured has one model's times on a machine without a GPU, by CPU quota and batch.
type Measured struct {
	profile *profiler.Profile
	shares  []int
	memory  int64
	spread  float64
}

// z95 is the distance of a normal distribution's 95th percentile from its mean, in standard
// deviations.
const z95 = 1.6449

// FromProfile returns the times of a measured or predicted profile. Instances can have each
// CPU share of shares, in millicores, and each batch size measured on its threads. memory is
// that of an instance in bytes, 0 for the profile's. The spread comes from the distance of
// 95th percentiles from medians.
func FromProfile(p *profiler.Profile, shares []int, memory int64) (*Measured, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if memory == 0 {
		memory = p.Memory
	}
	m := &Measured{profile: p, memory: memory, spread: DefaultSpread}
	for _, s := range shares {
		if _, ok := m.threads(s); ok {
			m.shares = append(m.shares, s)
		}
	}
	if len(m.shares) == 0 {
		return nil, fmt.Errorf("profile of %.12s: it has no times for any of %v millicores", p.Model, shares)
	}
	squares, n := 0.0, 0
	for _, at := range p.Measurements {
		if at.Runs > 1 && at.P95 > at.Median {
			sigma := math.Log(min(at.P95/at.Median, profiler.Noise)) / z95
			squares, n = squares+sigma*sigma, n+1
		}
	}
	if n > 0 {
		m.spread = math.Sqrt(squares / float64(n))
	}
	return m, nil
}

// Spread implements systems.Times.
func (m *Measured) Spread() float64 { return m.spread }

// Configs implements systems.Times.
func (m *Measured) Configs() []cluster.Config {
	var all []cluster.Config
	for _, s := range m.shares {
		threads, _ := m.threads(s)
		for _, at := range m.on(threads) {
			all = append(all, cluster.Config{Batch: at.Batch, Resources: cluster.Resources{CPU: s, Memory: m.memory}})
		}
	}
	return all
}

// threads returns the measured number of threads that suits a CPU share best: one thread for
// each core or part of a core, if that was measured, otherwise fewer.
func (m *Measured) threads(millicores int) (int, bool) {
	wanted, best := cluster.Config{Resources: cluster.Resources{CPU: millicores}}.Threads(), 0
	for _, t := range m.profile.Threads() {
		if t <= wanted {
			best = t
		}
	}
	return best, best > 0 && millicores > 0
}

func (m *Measured) on(threads int) []profiler.Measurement {
	var all []profiler.Measurement
	for _, at := range m.profile.Measurements {
		if at.Threads == threads {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, func(a, b profiler.Measurement) int { return a.Batch - b.Batch })
	return all
}

// Exec implements systems.Times. It returns the mean under the quota
// (profiler.MeanUnderQuota) of the median times, and interpolates linearly between measured
// batches. A batch below the smallest measured takes as long as that. Configs with a GPU
// have no times.
func (m *Measured) Exec(c cluster.Config, b int) (time.Duration, bool) {
	threads, ok := m.threads(c.CPU)
	if !ok || b < 1 || c.GPU > 0 {
		return 0, false
	}
	points := m.on(threads)
	i := slices.IndexFunc(points, func(at profiler.Measurement) bool { return at.Batch >= b })
	if i < 0 {
		return 0, false
	}
	wall, work := points[i].Median, points[i].CPU
	if i > 0 && points[i].Batch > b {
		low := points[i-1]
		part := float64(b-low.Batch) / float64(points[i].Batch-low.Batch)
		wall = low.Median + part*(wall-low.Median)
		work = low.CPU + part*(work-low.CPU)
	}
	if threads == 1 {
		work = max(work, wall)
	}
	mean := profiler.MeanUnderQuota(wall, work, min(c.CPU, threads*1000))
	return time.Duration(mean * float64(time.Microsecond)), true
}
