package profiler

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// DeviceTimes are the times in µs of one batch on a GPU: to copy it there, to compute, and to
// copy the answers back.
type DeviceTimes struct{ In, Compute, Out float64 }

// DeviceRunner executes batches of one model on a share of a GPU.
type DeviceRunner interface {
	// Run executes one batch of the given size on realistic inputs. It returns when the
	// answers are in the host's memory.
	Run(ctx context.Context, batch int) (DeviceTimes, error)
}

// DevicePlan says what to measure on a share of a GPU and for how long.
type DevicePlan struct {
	// GPU is the share in %. The process must have it already.
	GPU int
	// Batches are measured in ascending order.
	Batches []int
	// Until skips larger batches once a batch's median exceeds it. 0 is no limit.
	Until time.Duration
	// Window is the time of one window, and MaxTime the maximum of a batch. See
	// [DevicePlan.point].
	Window, MaxTime time.Duration
	// Now is the clock. CPU is the processor time that this process has used so far.
	Now func() time.Time
	CPU func() time.Duration
}

const (
	// windows that follow one another must agree, their medians within agree.
	windows = 3
	agree   = 0.02
	// fewRuns is the minimum number of runs in a window.
	fewRuns = 5
)

// MeasureDevice runs the plan.
func MeasureDevice(ctx context.Context, runner DeviceRunner, plan DevicePlan) (all []Measurement, err error) {
	batches := ascending(plan.Batches)
	if len(batches) == 0 || batches[0] < 1 || plan.GPU < 1 || plan.GPU > 100 {
		return nil, fmt.Errorf("profile: nothing to measure: batches %v on %d %% of a GPU", plan.Batches, plan.GPU)
	}
	for _, b := range batches {
		m, err := plan.point(ctx, runner, b)
		if err != nil {
			return nil, fmt.Errorf("profile: a batch of %d on %d %% of a GPU: %w", b, plan.GPU, err)
		}
		all = append(all, m)
		if plan.Until > 0 && m.Median > microseconds(plan.Until) {
			break
		}
	}
	return all, nil
}

// point measures one batch size. A GPU raises its clock under load and lowers it later, and
// the first runs load kernels. So point runs windows until three in a row have the same
// median within 2 %, and returns what these three measured. It takes the last three when
// MaxTime is over.
func (p DevicePlan) point(ctx context.Context, runner DeviceRunner, batch int) (Measurement, error) {
	m := Measurement{Batch: batch, Threads: 1, GPU: p.GPU}
	began := p.Now()
	var last []window
	for {
		w, err := p.window(ctx, runner, batch)
		if err != nil {
			return m, err
		}
		last = append(last[max(0, len(last)-windows+1):], w)
		if len(last) == windows && settled(last) || p.Now().Sub(began) >= p.MaxTime {
			break
		}
	}
	var all window
	for _, w := range last {
		all.wall, all.cpu = append(all.wall, w.wall...), append(all.cpu, w.cpu...)
		all.in, all.compute, all.out = append(all.in, w.in...), append(all.compute, w.compute...), append(all.out, w.out...)
	}
	m.Runs, m.Median, m.P95 = len(all.wall), Quantile(all.wall, 0.5), Quantile(all.wall, 0.95)
	m.CPU, m.In, m.Compute, m.Out = mean(all.cpu), Quantile(all.in, 0.5), Quantile(all.compute, 0.5), Quantile(all.out, 0.5)
	return m, nil
}

// window holds the times in µs of the runs in a window.
type window struct{ wall, cpu, in, compute, out []float64 }

func (p DevicePlan) window(ctx context.Context, runner DeviceRunner, batch int) (w window, err error) {
	began := p.Now()
	for len(w.wall) < fewRuns || p.Now().Sub(began) < p.Window {
		if err := ctx.Err(); err != nil {
			return w, err
		}
		used, before := p.CPU(), p.Now()
		took, err := runner.Run(ctx, batch)
		if err != nil {
			return w, err
		}
		w.wall = append(w.wall, microseconds(p.Now().Sub(before)))
		w.cpu = append(w.cpu, microseconds(p.CPU()-used))
		w.in, w.compute, w.out = append(w.in, took.In), append(w.compute, took.Compute), append(w.out, took.Out)
	}
	return w, nil
}

// settled reports whether the windows' medians agree.
func settled(all []window) bool {
	var medians []float64
	for _, w := range all {
		medians = append(medians, Quantile(w.wall, 0.5))
	}
	return slices.Max(medians) <= slices.Min(medians)*(1+agree)
}

// mean is the mean of values. Threads of the driver work now and then, so the median of a
// few runs would miss them.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
