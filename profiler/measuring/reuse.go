package measuring

import (
	"context"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/database"
)

const (
	smallestSweep int64 = 4 << 20
	largestSweep  int64 = 256 << 20
	// reuseRounds is the number of times that each sweep is measured: some seconds
	// in all, so the neighbours' part of the cache is typical.
	reuseRounds = 15
)

// MeasureReuse measures the time to read 4, 8, … 256 MiB again and again. A model reads
// its weights in the same way. The time shows how much of the last-level cache the
// neighbours leave, which cannot be read from the system (cop.Reuse).
func (m *Measurer) MeasureReuse(ctx context.Context, have func(key string) bool, put func(database.Row) error) error {
	if have(fmt.Sprintf(sweepKey, largestSweep>>20)) {
		return nil
	}
	memory, err := newSweeper(largestSweep)
	if err != nil {
		return err
	}
	defer memory.close()
	times := map[int64][]float64{}
	for range reuseRounds {
		if err := ctx.Err(); err != nil {
			return err
		}
		for size := smallestSweep; size <= largestSweep; size *= 2 {
			memory.sweep(size) // Reload the lines that another size evicted.
			start := time.Now()
			memory.sweep(size)
			times[size] = append(times[size], micros(time.Since(start)))
		}
	}
	for size, took := range times {
		t := profiler.Quantile(took, representative)
		if err := put(database.Row{
			Operator: fmt.Sprintf(sweepKey, size>>20), Family: yardstickFamily, Batch: 1, Millicores: 1000,
			Median: t, P95: profiler.Quantile(took, 0.95), CPU: t, Spread: (profiler.Quantile(took, 0.75) - profiler.Quantile(took, 0.25)) / t, Runs: len(took),
			Engine: m.engine, Machine: m.machine, MeasuredAt: time.Now().UTC(),
		}); err != nil {
			return err
		}
	}
	return nil
}
