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
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// promised are the times that the provider plans with: its profile of the model, corrected
// by the times of its instances. It implements systems.Times without a spread: these times
// are already a quantile of the executions.
type promised struct {
	candidates []profiler.Candidate
	times      *correction.Correction
}

const (
	// quantile is the provider's default quantile of execution times.
	quantile = 0.95
	// minMemory is the provider's minimum memory of an instance in bytes.
	minMemory = 256 << 20
)

// providerTimes reads the times of a function from the state of a stopped provider.
func (o *Options) providerTimes(state string, f *Subject) (*promised, error) {
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
	p.candidates = profile.Candidates(profile.Shares(WholeCore), f.MaxBatch, max(2*profile.Memory, minMemory))
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
	return p.times.ExecTime(b, capacity.ShareOf(c))
}

// Spread implements systems.Times.
func (p *promised) Spread() float64 { return 0 }
