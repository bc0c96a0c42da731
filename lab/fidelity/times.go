package fidelity

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider/store"
)

// promised are the times that the provider goes by: its profile of the model,
// corrected by what its instances have shown. It implements systems.Times, without a
// spread: these times are already those that executions are held to.
type promised struct {
	candidates []profiler.Candidate
	times      *correction.Correction
}

// The provider's defaults where a deployment does not say: the part of the
// executions that is held to a time, the CPU shares of instances of one core at most
// in millicores, and the least memory in bytes.
var shares = []int{250, 500, WholeCore}

const (
	quantile    = 0.95
	leastMemory = 256 << 20
)

// known reads what a provider that has stopped knew of a function's times.
func (o *Options) known(state string, f *Subject) (*promised, error) {
	hash, err := model.ContentHash(filepath.Join(state, "bundles", f.Name, "latest", "model.onnx"))
	if err != nil {
		return nil, err
	}
	s, err := store.Open(filepath.Join(state, "faas-infer.db"))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	profile, err := s.Profile(fmt.Sprintf("%s %s %s b≤%d", hash, o.Engine, report.Machine(), f.MaxBatch))
	if err != nil {
		return nil, fmt.Errorf("the provider's profile: %w", err)
	}
	p := &promised{times: correction.New(profile, quantile)}
	if seen, err := s.Correction(f.Name + Namespace); err == nil {
		if err := p.times.Restore(seen, time.Now()); err != nil {
			return nil, fmt.Errorf("the provider's corrections: %w", err)
		}
	}
	p.times.Update(time.Now())
	p.candidates = profile.Candidates(shares, f.MaxBatch, max(2*profile.Memory, leastMemory))
	return p, nil
}

// Configs implements systems.Times.
func (p *promised) Configs() []cluster.Config {
	var all []cluster.Config
	for _, c := range p.candidates {
		all = append(all, cluster.Config{Batch: c.Batch, Resources: cluster.Resources{CPU: c.CPU, Memory: c.Memory}})
	}
	return all
}

// Exec implements systems.Times.
func (p *promised) Exec(c cluster.Config, b int) (time.Duration, bool) {
	return p.times.ExecTime(b, c.CPU)
}

// Spread implements systems.Times.
func (p *promised) Spread() float64 { return 0 }
