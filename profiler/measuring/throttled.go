package measuring

import (
	"context"
	"math"
	"time"
)

const (
	// block is how long executions follow each other before their mean is
	// taken: forty periods of a quota, so that it does not matter when in one
	// it begins and ends, or that the yardstick uses some of it.
	block  = 400 * time.Millisecond
	blocks = 3
	// refill is a pause after the yardstick, in which the quota comes back that
	// it has used.
	refill = 20 * time.Millisecond
	// settle is how often the pace is read.
	settle = 3
)

// TakeMean is [Sampler.Take] for a process under a CPU quota. There an execution
// takes its undisturbed time or that and a pause, according to what is left of
// the quota, so what is sampled is the mean of executions one after another.
func (s *Sampler) TakeMean(ctx context.Context, b Budget, run func() error) (Sample, error) {
	if err := run(); err != nil {
		return Sample{}, err
	}
	var all []taken
	began := time.Now()
	pace, err := s.unthrottled()
	if err != nil {
		return Sample{}, err
	}
	for {
		n, start, used := 0, time.Now(), processorTime()
		for n == 0 || time.Since(start) < block {
			if err := ctx.Err(); err != nil {
				return Sample{}, err
			}
			if err := run(); err != nil {
				return Sample{}, err
			}
			n++
		}
		wall, cpu := micros(time.Since(start))/float64(n), micros(processorTime()-used)/float64(n)
		after, err := s.unthrottled()
		if err != nil {
			return Sample{}, err
		}
		all = append(all, taken{
			wall: []float64{wall}, cpu: []float64{cpu},
			pace: (pace + after) / 2,
		})
		pace = after
		if elapsed := time.Since(began); len(all) >= blocks && elapsed >= b.MinTime || len(all) >= 2 && elapsed >= b.MaxTime {
			return summarise(all, 2), nil
		}
	}
}

// unthrottled is the pace as it is between two pauses for want of quota, the
// least of a few readings: right after one it is slower.
func (s *Sampler) unthrottled() (float64, error) {
	least := math.Inf(1)
	for range settle {
		p, err := s.yard.read()
		if err != nil {
			return 0, err
		}
		least = min(least, p)
	}
	time.Sleep(refill)
	return least, nil
}

// Sweep is [Sampler.TakeMean] of a sweep through a part of the last-level cache,
// again and again.
func (s *Sampler) Sweep(ctx context.Context, b Budget) (Sample, error) {
	size := ReadCaches().sample()
	memory, err := newSweeper(size)
	if err != nil {
		return Sample{}, err
	}
	defer memory.close()
	return s.TakeMean(ctx, b, func() error {
		memory.sweep(size)
		return nil
	})
}
