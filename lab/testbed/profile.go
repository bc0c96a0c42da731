// Package testbed says how long a simulated model's batches take: from the
// published times of INFless' testbed, from a file in the same form, or from
// what a profiler has measured on this machine. All implement systems.Times.
package testbed

import (
	"fmt"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Memory is what an instance of a model takes, whatever its config: Host in bytes
// of its node's memory and, where it has a share of a GPU, GPU in bytes of that.
type Memory struct{ Host, GPU int64 }

// DefaultSpread is the standard deviation of the logarithm of a time where a
// profile has too few times to tell it.
const DefaultSpread = 0.05

// Testbed is one model's times by CPU share, GPU share and batch.
type Testbed struct {
	model  string
	memory Memory
	spread float64
	// shares are what was measured, by GPU and CPU.
	shares []*share
	at     map[cluster.Resources]*share // by CPU and GPU alone
}

// share is one CPU and GPU share.
type share struct {
	cpu, gpu int
	// batches were measured, ascending; the first is the smallest.
	batches []int
	// times[b-1] is of a batch of b in ns, up to the largest measured.
	times []float64
}

// FromTestbed takes a model's times of a testbed. Measured times are taken as they
// are, with two exceptions. Where a larger batch was faster than a smaller one on
// the same share, which is noise, both get their mean. And a batch smaller than the
// smallest that was measured on a share, as an instance executes one that has not
// filled, takes the same part of that one's time as on the next smaller CPU share
// where both are known. Between batches, and between shares, a time is on the line
// through its neighbours.
//
// The spread is that of the published times: see [Testbed.Spread].
func FromTestbed(t *ReferenceTestbed, model string, memory Memory) (*Testbed, error) {
	configs := t.Configs(model)
	if len(configs) == 0 {
		return nil, fmt.Errorf("the profile has no model %q: it has %q", model, t.Models())
	}
	p := &Testbed{model: model, memory: memory, at: map[cluster.Resources]*share{}, spread: spread(configs)}
	for _, c := range configs { // by GPU, CPU and batch
		key := cluster.Resources{CPU: c.Millicores, GPU: c.GPU}
		s := p.at[key]
		if s == nil {
			s = &share{cpu: c.Millicores, gpu: c.GPU}
			p.at[key] = s
			p.shares = append(p.shares, s)
		}
		s.batches = append(s.batches, c.Batch)
		s.times = append(s.times, c.Time.Milliseconds*float64(time.Millisecond))
	}
	for i, s := range p.shares {
		s.times = s.fill(monotone(s.times), p.shares[:i])
	}
	return p, nil
}

// SetSpread replaces the measured spread.
func (p *Testbed) SetSpread(spread float64) { p.spread = spread }

// Spread implements systems.Times. It is how much published times scatter around
// what they ought to be: the standard deviation of their logarithms around a line
// in the logarithm of the GPU share, for each CPU share and batch that was measured
// on three GPU shares or more, pooled. Neighbouring shares differ little in truth,
// so this is mostly what repeating a measurement would show; rounding to whole
// milliseconds, where a model is that fast, is in it.
func (p *Testbed) Spread() float64 { return p.spread }

// Model is the model's name in the profile.
func (p *Testbed) Model() string { return p.model }

// Configs implements systems.Times: what was measured, by GPU, CPU and batch.
func (p *Testbed) Configs() []cluster.Config {
	var all []cluster.Config
	for _, s := range p.shares {
		for _, b := range s.batches {
			all = append(all, cluster.Config{Batch: b, Resources: p.resources(s)})
		}
	}
	return all
}

func (p *Testbed) resources(s *share) cluster.Resources {
	r := cluster.Resources{CPU: s.cpu, GPU: s.gpu, Memory: p.memory.Host}
	if s.gpu > 0 {
		r.GPUMemory = p.memory.GPU
	}
	return r
}

// Exec implements systems.Times.
func (p *Testbed) Exec(c cluster.Config, b int) (time.Duration, bool) {
	t, ok := p.time(c.CPU, c.GPU, b)
	return time.Duration(t), ok
}

func (s *share) time(b int) (float64, bool) {
	if b < 1 || b > len(s.times) {
		return 0, false
	}
	return s.times[b-1], true
}

// time is a batch's on any share: measured, or first between CPU shares, then
// between GPU shares. Between no GPU and the smallest share of one there is nothing.
func (p *Testbed) time(cpu, gpu, b int) (float64, bool) {
	if s := p.at[cluster.Resources{CPU: cpu, GPU: gpu}]; s != nil {
		return s.time(b)
	}
	var below, above point
	for _, g := range p.gpus() {
		t, ok := p.onGPU(cpu, g, b)
		switch {
		case !ok:
		case g == gpu:
			return t, true
		case g < gpu && g > 0:
			below = point{g, t}
		case g > gpu && gpu > 0 && above.at == 0:
			above = point{g, t}
		}
	}
	return between(below, above, gpu)
}

func (p *Testbed) gpus() []int {
	var all []int
	for _, s := range p.shares {
		all = append(all, s.gpu)
	}
	return slices.Compact(all)
}

func (p *Testbed) onGPU(cpu, gpu, b int) (float64, bool) {
	var below, above point
	for _, s := range p.shares {
		t, ok := s.time(b)
		switch {
		case !ok || s.gpu != gpu:
		case s.cpu == cpu:
			return t, true
		case s.cpu < cpu:
			below = point{s.cpu, t}
		case above.at == 0:
			above = point{s.cpu, t}
		}
	}
	return between(below, above, cpu)
}

// point is a time at a share; at 0 there is none.
type point struct {
	at int
	t  float64
}

func between(below, above point, at int) (float64, bool) {
	if below.at == 0 || above.at == 0 {
		return 0, false
	}
	part := float64(at-below.at) / float64(above.at-below.at)
	return below.t + part*(above.t-below.t), true
}

// Fastest is the shortest mean time of a single request on a config that fits, and
// that config; false if none fits.
func Fastest(t systems.Times, fits func(cluster.Resources) bool) (time.Duration, cluster.Config, bool) {
	best, on, found := time.Duration(0), cluster.Config{}, false
	for _, c := range t.Configs() {
		if !fits(c.Resources) {
			continue
		}
		if exec, ok := t.Exec(c, 1); ok && (!found || exec < best) {
			best, on, found = exec, c, true
		}
	}
	return best, on, found
}
