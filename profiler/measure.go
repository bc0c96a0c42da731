package profiler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Runner executes batches of one model on a fixed number of threads.
type Runner interface {
	// Run executes one batch of the given size on realistic inputs.
	Run(ctx context.Context, batch int) error
	// Close frees the model.
	Close() error
}

// Plan says what to measure and for how long.
type Plan struct {
	// Batches and Threads are measured in ascending order, every batch on
	// every thread count.
	Batches []int
	Threads []int
	// Until skips larger batches of a thread count once a batch's median exceeds
	// it. 0 is no limit.
	Until time.Duration
	// MinRuns and MinTime are the minimum of a point's runs and time, MaxTime is
	// the maximum, but at least one run. The first run, which loads and warms the
	// model, does not count.
	MinRuns          int
	MinTime, MaxTime time.Duration
	// Enough skips larger batches of a thread count once their measurements have
	// taken this long together. 0 is no limit.
	Enough time.Duration
	// Now is the clock. CPU is the processor time that this process has used so
	// far. Waited is the time that its threads together have waited for a core; it
	// is taken off the model's time. It may be nil.
	Now    func() time.Time
	CPU    func() time.Duration
	Waited func() time.Duration
}

// Quick is a plan of about four seconds, for a deployment: all powers of two up to
// maxBatch, and maxBatch itself, on 1…threads threads. Pass half the SLO as until,
// since no config uses a batch that takes longer (INFless Eq. 4).
func Quick(maxBatch, threads int, until time.Duration, now func() time.Time, cpu func() time.Duration) Plan {
	p := Plan{
		Until: until, MinRuns: 20, MinTime: 50 * time.Millisecond, MaxTime: 500 * time.Millisecond,
		Now: now, CPU: cpu,
	}
	for b := 1; b < maxBatch; b *= 2 {
		p.Batches = append(p.Batches, b)
	}
	p.Batches = append(p.Batches, max(1, maxBatch))
	for t := range max(1, threads) {
		p.Threads = append(p.Threads, t+1)
	}
	return p
}

// Sketch is a plan of about a second, for a new model that should serve at once. It
// measures as many batches as it can in that time, on one thread.
func Sketch(maxBatch int, until time.Duration, now func() time.Time, cpu func() time.Duration) Plan {
	p := Quick(maxBatch, 1, until, now, cpu)
	p.MinRuns, p.MinTime, p.MaxTime, p.Enough = 5, 20*time.Millisecond, 200*time.Millisecond, 500*time.Millisecond
	return p
}

// Measure runs the plan. It calls open once per thread count and closes the runner.
// It reports the number of finished points to progress, which may be nil. Skipped
// points count as finished.
func Measure(ctx context.Context, open func(threads int) (Runner, error), plan Plan, progress func(done, total int)) ([]Measurement, error) {
	batches, threads := ascending(plan.Batches), ascending(plan.Threads)
	if len(batches) == 0 || len(threads) == 0 || batches[0] < 1 || threads[0] < 1 {
		return nil, fmt.Errorf("profile: nothing to measure: batches %v on threads %v", plan.Batches, plan.Threads)
	}
	total := len(batches) * len(threads)
	if progress == nil {
		progress = func(int, int) {}
	}
	var all []Measurement
	for i, n := range threads {
		done := i * len(batches)
		ms, err := plan.measureThreads(ctx, open, n, batches, func(points int) { progress(done+points, total) })
		if err != nil {
			return nil, err
		}
		all = append(all, ms...)
		progress(done+len(batches), total)
	}
	return all, nil
}

func ascending(ns []int) []int {
	sorted := slices.Clone(ns)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// measureThreads measures the batches on n threads.
func (p Plan) measureThreads(ctx context.Context, open func(int) (Runner, error), n int, batches []int, progress func(points int)) (ms []Measurement, err error) {
	runner, err := open(n)
	if err != nil {
		return nil, fmt.Errorf("profile: open on %d threads: %w", n, err)
	}
	defer func() {
		if closeErr := runner.Close(); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("profile: close: %w", closeErr))
		}
	}()
	began := p.Now()
	for i, b := range batches {
		m, err := p.point(ctx, runner, b, n)
		if i > 0 && needsMemory(err) {
			break // The smaller batches are what the machine can serve.
		}
		if err != nil {
			return nil, fmt.Errorf("profile: batch %d on %d threads: %w", b, n, err)
		}
		m.Threads = n
		ms = append(ms, m)
		if p.Until > 0 && m.Median > microseconds(p.Until) || p.Enough > 0 && p.Now().Sub(began) > p.Enough {
			break
		}
		progress(i + 1)
	}
	return ms, nil
}

// needsMemory reports whether an error of a run says that the batch is too large for the memory.
func needsMemory(err error) bool {
	var status interface{ HTTPStatus() int }
	return errors.As(err, &status) && status.HTTPStatus() == tooLarge
}

// tooLarge is HTTP's status of a request that is too large.
const tooLarge = 413

// point measures one batch size on n threads. It takes off the time that the threads
// waited for a core: if each waited for 3 ms of 10, the batch took 7. Threads that compute
// nothing may have waited too, for instance on a single core, so a batch takes no less than the
// CPU time of each thread.
func (p Plan) point(ctx context.Context, runner Runner, batch, n int) (Measurement, error) {
	if _, _, err := p.once(ctx, runner, batch); err != nil {
		return Measurement{}, err
	}
	var walls, cpus []float64
	began := p.Now()
	for {
		waited := p.waited()
		wall, cpu, err := p.once(ctx, runner, batch)
		if err != nil {
			return Measurement{}, err
		}
		wall = max(wall/4, min(wall, cpu/float64(n)), wall-microseconds(p.waited()-waited)/float64(n))
		walls, cpus = append(walls, wall), append(cpus, cpu)
		elapsed := p.Now().Sub(began)
		if len(walls) >= p.MinRuns && elapsed >= p.MinTime || p.MaxTime > 0 && elapsed >= p.MaxTime {
			break
		}
	}
	return Measurement{
		Batch: batch, Runs: len(walls),
		Median: Quantile(walls, 0.5), P95: Quantile(walls, 0.95), CPU: Quantile(cpus, 0.5),
	}, nil
}

// waited is Waited, 0 if that is nil.
func (p Plan) waited() time.Duration {
	if p.Waited == nil {
		return 0
	}
	return p.Waited()
}

// once runs one batch; it returns its wall time and CPU time in µs.
func (p Plan) once(ctx context.Context, runner Runner, batch int) (wall, cpu float64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	usedBefore, before := p.CPU(), p.Now()
	if err := runner.Run(ctx, batch); err != nil {
		return 0, 0, err
	}
	return microseconds(p.Now().Sub(before)), microseconds(p.CPU() - usedBefore), nil
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Quantile is the smallest value that at least the fraction q of the values does not
// exceed (nearest rank), NaN without values. The values' unit is the result's.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
