package measuring

import (
	"context"
	"time"
)

const (
	// block is how long executions follow each other before their mean is
	// taken: twenty periods of a quota, so that it does not matter when in one
	// it begins and ends, or that the yardsticks use some of it.
	block  = 200 * time.Millisecond
	blocks = 4
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
	pace, err := s.yard.read()
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
		after, err := s.yard.read()
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
