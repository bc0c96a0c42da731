package control

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster"
)

// BenchmarkFleetStep measures the looks during a load step of 400 requests/s for one of 40
// or 10,000 functions, which have 10,000 instances on 2,000 nodes. It reports wall-clock time and
// processor time; other programs on the machine hardly change the latter. It lasts 8
// seconds.
func BenchmarkFleetStep(b *testing.B) {
	for _, functions := range []int{40, 10_000} {
		b.Run(fmt.Sprint(functions), func(b *testing.B) { fleetStep(b, functions) })
	}
}

func fleetStep(b *testing.B, functions int) {
	const rate, lasts = 400, 8 * time.Second
	runtime.LockOSThread() // Its time is measured.
	defer runtime.UnlockOSThread()
	r, backend := newFleet(b, functions, 10_000, 2000)
	before := backend.started.Load()
	var took, used []float64
	for range b.N {
		ctx, stop := context.WithTimeout(b.Context(), lasts)
		var requests sync.WaitGroup
		requests.Go(func() { r.flood(ctx, "step", rate, &requests) })
		for tick := time.NewTicker(r.options.Tick); ctx.Err() == nil; {
			began, busy := time.Now(), processorTime(b)
			r.scale(began)
			took, used = append(took, time.Since(began).Seconds()), append(used, (processorTime(b)-busy).Seconds())
			for len(backend.News) > 0 {
				r.keeper.Observe(<-backend.News)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
			}
		}
		stop()
		requests.Wait()
	}
	b.StopTimer()
	b.ReportMetric(1000*slices.Max(took), "ms/longest")
	b.ReportMetric(1000*slices.Max(used), "cpu-ms/longest")
	slices.Sort(used)
	b.ReportMetric(1000*used[len(used)/2], "cpu-ms/median")
	b.ReportMetric(float64(backend.started.Load()-before), "starts")
	if err := r.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// flood sends requests at a rate until ctx ends, and ignores the answers.
func (r *rig) flood(ctx context.Context, name string, rate int, requests *sync.WaitGroup) {
	next := time.Tick(time.Second / time.Duration(rate))
	for {
		select {
		case <-next:
			requests.Go(func() { _, _ = r.invoke(name, "x") })
		case <-ctx.Done():
			return
		}
	}
}

// processorTime returns the processor time that this thread has used.
func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// serving makes an instance that answers.
func (b *fleetBackend) serving(in cluster.Instance) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.Put(in, behaviour{})
}
