// Package testbed has the execution times of simulated models: the published times of
// INFless' testbed, a file in the same form, a line, or BATCH's times on AWS Lambda. All implement
// systems.Times. It measures nothing. Begin with FromTestbed and FromLambda.
package testbed

import (
	"fmt"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Memory is the memory of a model's instance with any config: Host of the node and, if the
// instance has a GPU share, GPU of the GPU, in bytes.
type Memory struct{ Host, GPU int64 }

// DefaultSpread is the standard deviation of the logarithm of a time if a profile has too
// few times to estimate it.
const DefaultSpread = 0.05

// Testbed has one model's times by CPU share, GPU share and batch.
type Testbed struct {
	model  string
	memory Memory
	spread float64
	// shares are the measured shares, by GPU and CPU.
	shares []*share
	at     map[cluster.Resources]*share // The keys have only CPU and GPU.
}

// share is one CPU and GPU share.
type share struct {
	cpu, gpu int
	// batches are the measured batch sizes, ascending.
	batches []int
	// times[b-1] is the time of a batch of b in ns, up to the largest measured.
	times []float64
}

// FromTestbed returns a model's times of a testbed. They are the measured times, with two
// exceptions. If a larger batch was faster than a smaller one on the same share, which is
// noise, both get their mean. The second exception are batches smaller than the smallest
// measured on a share; an instance executes them if its batch has not filled. Such a batch
// takes the same part of that batch's time as on the next smaller CPU share where both are
// known. Between batches and between shares, times are interpolated linearly.
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
		s.times = append(s.times, c.Milliseconds*float64(time.Millisecond))
	}
	for i, s := range p.shares {
		s.times = s.fill(monotone(s.times), p.shares[:i])
	}
	return p, nil
}

// FromLine returns the times αb + β of batches up to a size on a whole GPU with one CPU thread, without spread: those
// of Nexus and Symphony.
func FromLine(model string, alpha, beta time.Duration, batch int, memory Memory) *Testbed {
	s := &share{cpu: 1000, gpu: 100}
	for b := 1; b <= batch; b++ {
		s.batches = append(s.batches, b)
		s.times = append(s.times, float64(alpha)*float64(b)+float64(beta))
	}
	return &Testbed{model: model, memory: memory, shares: []*share{s}, at: map[cluster.Resources]*share{{CPU: s.cpu, GPU: s.gpu}: s}}
}

// SetSpread replaces the measured spread.
func (p *Testbed) SetSpread(spread float64) { p.spread = spread }

// Spread implements systems.Times. It is the standard deviation of the logarithms of the
// published times around a line in the logarithm of the GPU share. Each CPU share and batch
// measured on at least three GPU shares has a line; their residuals are pooled.
// Neighbouring shares differ little, so the spread is mostly that of repeated measurements.
// For fast models it includes the rounding to whole milliseconds.
func (p *Testbed) Spread() float64 { return p.spread }

// Model returns the model's name in the profile.
func (p *Testbed) Model() string { return p.model }

// Configs implements systems.Times. It returns the measured configs, by GPU, CPU and batch.
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

// time returns the time of a batch in ns on any share: measured, or interpolated first
// between CPU shares, then between GPU shares. Between no GPU and the smallest share of one
// there is no time.
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

// point is a time at a share. There is none if at is 0.
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

// Fastest returns the shortest mean time of a single request on a config that fits, and
// that config. ok is false if none fits.
func Fastest(t systems.Times, fits func(cluster.Config) bool) (time.Duration, cluster.Config, bool) {
	best, on, found := time.Duration(0), cluster.Config{}, false
	for _, c := range t.Configs() {
		if !fits(c) {
			continue
		}
		if exec, ok := t.Exec(c, 1); ok && (!found || exec < best) {
			best, on, found = exec, c, true
		}
	}
	return best, on, found
}
