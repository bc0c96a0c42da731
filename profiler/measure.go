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
	// Until ends the batches of a thread count: once a batch takes longer in
	// the median, larger ones are not tried. 0 means none is too long.
	Until time.Duration
	// Each point is run at least MinRuns times and for MinTime, but not on
	// after MaxTime (which still allows one run). The first, which loads and
	// warms, does not count.
	MinRuns          int
	MinTime, MaxTime time.Duration
	// Enough ends the batches of a thread count, too: once that long has been
	// measured in all, larger ones are not begun. 0 means never.
	Enough time.Duration
	// Now is the clock; CPU is the processor time that this process has used
	// so far; Waited, which may be nil, how long its threads together have waited
	// for a core that others had. That is not the model's time.
	Now    func() time.Time
	CPU    func() time.Duration
	Waited func() time.Duration
}

// Quick measures a model in about four seconds when it is deployed: all powers
// of two up to maxBatch on 1…threads threads. A batch that takes longer than
// half the SLO would not be used (INFless Eq. 4), so pass that as until.
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

// Sketch is a plan of about a second, for a new model that is to serve at once:
// the batches that can be measured in that time, on one thread.
func Sketch(maxBatch int, until time.Duration, now func() time.Time, cpu func() time.Duration) Plan {
	p := Quick(maxBatch, 1, until, now, cpu)
	p.MinRuns, p.MinTime, p.MaxTime, p.Enough = 5, 20*time.Millisecond, 200*time.Millisecond, 500*time.Millisecond
	return p
}

// Measure runs the plan. open is called once per thread count, and what it
// returns is closed. progress, which may be nil, is told how many points are
// done; points that are not needed count as done.
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

// point measures one batch size on n threads. When each has waited for a core for 3 ms of
// 10, the batch took 7.
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
		wall = max(wall/4, wall-microseconds(p.waited()-waited)/float64(n))
		walls, cpus = append(walls, wall), append(cpus, cpu)
		elapsed := p.Now().Sub(began)
		if len(walls) >= p.MinRuns && elapsed >= p.MinTime || p.MaxTime > 0 && elapsed >= p.MaxTime {
			break
		}
	}
	return Measurement{
		Batch: batch, Runs: len(walls),
		Median: quantile(walls, 0.5), P95: quantile(walls, 0.95), CPU: quantile(cpus, 0.5),
	}, nil
}

// waited is Waited, 0 if nothing tells.
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

// quantile is the smallest value that at least the part q of the values does
// not exceed.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
