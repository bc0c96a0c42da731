package measuring

import (
	"context"
	"math"
	"time"
)

const (
	// block is how long executions follow each other before their mean is
	// taken: forty periods of a quota, so that it does not matter when in one
	// it begins and ends, or that the yardsticks use some of it.
	block  = 400 * time.Millisecond
	blocks = 3
	// refill is a pause after the yardsticks, in which the quota comes back
	// that they have used.
	refill = 20 * time.Millisecond
	// settle is how often the pace is read: right after a pause it is slower.
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
			pace: Pace{Compute: (pace.Compute + after.Compute) / 2, Memory: (pace.Memory + after.Memory) / 2},
		})
		pace = after
		if elapsed := time.Since(began); len(all) >= blocks && elapsed >= b.MinTime || len(all) >= 2 && elapsed >= b.MaxTime {
			return summarise(all, 2), nil
		}
	}
}

// unthrottled is the pace of computing as it is between two pauses for want of
// quota, the least of a few readings. The memory's cannot be told from here: what
// it works on has been pushed out during the last pause, too.
func (s *Sampler) unthrottled() (Pace, error) {
	least := math.Inf(1)
	for range settle {
		compute, err := s.yard.compute()
		if err != nil {
			return Pace{}, err
		}
		least = min(least, compute/s.yard.base.Compute)
	}
	time.Sleep(refill)
	return Pace{Compute: least, Memory: least}, nil
}

// Sweep is [Sampler.TakeMean] of the memory's yardstick.
func (s *Sampler) Sweep(ctx context.Context, b Budget) (Sample, error) {
	return s.TakeMean(ctx, b, func() error {
		s.yard.sweep.sweep(s.yard.size)
		return nil
	})
}
