package local

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/process"
)

// sampler turns a counter of CPU time into a rate.
type sampler struct {
	mu  sync.Mutex
	at  time.Time
	cpu time.Duration
}

// rate returns the millicores used since the last call, or since started at the first
// call.
func (s *sampler) rate(now, started time.Time, cpu time.Duration) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() {
		s.at = started
	}
	elapsed, used := now.Sub(s.at), cpu-s.cpu
	s.at, s.cpu = now, cpu
	if elapsed <= 0 || used <= 0 {
		return 0
	}
	return int(1000 * used.Seconds() / elapsed.Seconds())
}

// Usage returns what an instance uses. Without cgroups it counts only the main process.
// It returns an error if the instance does not exist.
func (b *Backend) Usage(_ context.Context, id cluster.InstanceID) (cluster.Resources, error) {
	e, err := b.find(id)
	if err != nil {
		return cluster.Resources{}, err
	}
	if e == nil || !isClosed(e.launched) || isClosed(e.gone) {
		return cluster.Resources{}, fmt.Errorf("usage of %s: no such instance", id)
	}
	cpu, memory, err := e.counters()
	if err != nil {
		return cluster.Resources{}, fmt.Errorf("usage of %s: %w", id, err)
	}
	return cluster.Resources{
		CPU:    e.usage.rate(b.options.Now(), e.record.StartedAt, cpu),
		Memory: memory,
	}, nil
}

func (e *entry) counters() (cpu time.Duration, memory int64, err error) {
	if e.group == nil {
		return process.Usage(*e.record.Process)
	}
	usage, err := e.group.Usage()
	return usage.CPU, usage.Memory, err
}
