package measuring

import (
	"context"
	"math"
	"time"
)

const (
	// block is the time of executions over which the mean is taken. It is forty
	// periods of a quota, so its position within a period does not matter, nor the
	// yardstick's own use of the quota.
	block  = 400 * time.Millisecond
	blocks = 3
	// refill is a pause after the yardstick, in which the quota that it used comes
	// back.
	refill = 20 * time.Millisecond
	// settle is the number of readings of the pace.
	settle = 3
)

// TakeMean is [Sampler.Take] for a process under a CPU quota. There an execution takes
// its undisturbed time, or longer by a pause if the quota is used up. So TakeMean samples
// the mean of consecutive executions.
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

// unthrottled is the pace between two pauses of the quota. It is the minimum of a few
// readings, because the pace is slower right after a pause.
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

// Sweep is [Sampler.TakeMean] of repeated sweeps through a part of the last-level cache.
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
