package profiler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// bench is a model, and a clock that only the model advances. A batch takes 1 ms plus
// 1 ms per request, divided by the number of threads. Every tenth run takes three
// times as long, the first ten times.
type bench struct {
	now     time.Time
	cpu     time.Duration
	threads int
	runs    int
	opened  []int
	closed  int
	fail    error
}

func (b *bench) open(threads int) (Runner, error) {
	b.threads, b.runs = threads, 0
	b.opened = append(b.opened, threads)
	return b, nil
}

func (b *bench) Run(_ context.Context, batch int) error {
	t := time.Duration(1+batch) * time.Millisecond / time.Duration(b.threads)
	if b.runs == 0 {
		t *= 10
	} else if b.runs%10 == 0 {
		t *= 3
	}
	b.runs++
	b.now = b.now.Add(t)
	b.cpu += t * time.Duration(b.threads)
	return b.fail
}

func (b *bench) Close() error { b.closed++; return nil }

func (b *bench) plan() Plan {
	return Plan{
		Batches: []int{4, 1, 2, 1}, Threads: []int{2, 1}, MinRuns: 20, MinTime: 10 * time.Millisecond, MaxTime: time.Second,
		Now: func() time.Time { return b.now }, CPU: func() time.Duration { return b.cpu },
	}
}

func TestMeasure(t *testing.T) {
	b := &bench{}
	var told []int
	ms, err := Measure(context.Background(), b.open, b.plan(), func(done, total int) {
		if total != 6 {
			t.Errorf("total %d, want 6", total)
		}
		told = append(told, done)
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []Measurement{
		{Batch: 1, Threads: 1, Median: 2000, P95: 6000, CPU: 2000, Runs: 20},
		{Batch: 2, Threads: 1, Median: 3000, P95: 9000, CPU: 3000, Runs: 20},
		{Batch: 4, Threads: 1, Median: 5000, P95: 15000, CPU: 5000, Runs: 20},
		{Batch: 1, Threads: 2, Median: 1000, P95: 3000, CPU: 2000, Runs: 20},
		{Batch: 2, Threads: 2, Median: 1500, P95: 4500, CPU: 3000, Runs: 20},
		{Batch: 4, Threads: 2, Median: 2500, P95: 7500, CPU: 5000, Runs: 20},
	}
	if !slices.Equal(ms, want) {
		t.Errorf("got %v, want %v", ms, want)
	}
	if !slices.Equal(told, []int{1, 2, 3, 3, 4, 5, 6, 6}) {
		t.Errorf("progress %v", told)
	}
	if !slices.Equal(b.opened, []int{1, 2}) || b.closed != 2 {
		t.Errorf("opened %v, closed %d", b.opened, b.closed)
	}
}

func TestMeasureStopsWhereABatchTakesTooLong(t *testing.T) {
	b := &bench{}
	plan := b.plan()
	plan.Batches, plan.Threads, plan.Until = []int{1, 2, 4, 8}, []int{1}, 2500*time.Microsecond
	last := 0
	ms, err := Measure(context.Background(), b.open, plan, func(done, _ int) { last = done })
	if err != nil {
		t.Fatal(err)
	}
	if len(ms) != 2 || ms[1].Batch != 2 || last != 4 {
		t.Errorf("got %v and %d points done, want batches 1 and 2, 4 points done", ms, last)
	}
}

func TestMeasureKeepsToMaxTime(t *testing.T) {
	b := &bench{}
	plan := b.plan()
	plan.Batches, plan.Threads, plan.MaxTime = []int{100}, []int{1}, 250*time.Millisecond
	ms, err := Measure(context.Background(), b.open, plan, nil)
	if err != nil {
		t.Fatal(err)
	}
	if ms[0].Runs != 3 {
		t.Errorf("%d runs of 101 ms in 250 ms, want 3", ms[0].Runs)
	}
}

func TestMeasureFails(t *testing.T) {
	b := &bench{fail: errors.New("out of memory")}
	if _, err := Measure(context.Background(), b.open, b.plan(), nil); !errors.Is(err, b.fail) || b.closed != 1 {
		t.Errorf("got %v, closed %d", err, b.closed)
	}
	broken := func(int) (Runner, error) { return nil, errors.New("no such model") }
	if _, err := Measure(context.Background(), broken, b.plan(), nil); err == nil || !strings.Contains(err.Error(), "no such model") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Measure(ctx, (&bench{}).open, b.plan(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	plan := b.plan()
	plan.Batches = []int{0, 1}
	if _, err := Measure(context.Background(), b.open, plan, nil); err == nil || !strings.Contains(err.Error(), "nothing to measure") {
		t.Errorf("got %v", err)
	}
}

// vast is the error of a batch that needs too much memory.
type vast struct{}

func (vast) Error() string   { return "too large" }
func (vast) HTTPStatus() int { return 413 }

// The memory bounds the batches, unless it is too small for one request.
func TestMeasureStopsWhereTheMemoryEnds(t *testing.T) {
	for most, want := range map[int]int{4: 3, 1: 1, 0: 0} {
		b := &bench{}
		plan := b.plan()
		plan.Threads = []int{1}
		open := func(threads int) (Runner, error) {
			r, err := b.open(threads)
			return small{r, most}, err
		}
		ms, err := Measure(context.Background(), open, plan, nil)
		if len(ms) != want || (err != nil) != (want == 0) {
			t.Errorf("memory for %d requests: %v, %v", most, ms, err)
		}
	}
}

// small is a runner with memory for so many requests.
type small struct {
	Runner
	most int
}

func (s small) Run(ctx context.Context, batch int) error {
	if batch > s.most {
		return vast{}
	}
	return s.Runner.Run(ctx, batch)
}

func TestQuick(t *testing.T) {
	p := Quick(24, 2, time.Second, nil, nil)
	if !slices.Equal(p.Batches, []int{1, 2, 4, 8, 16, 24}) || !slices.Equal(p.Threads, []int{1, 2}) {
		t.Errorf("batches %v on threads %v", p.Batches, p.Threads)
	}
	if p := Quick(0, 0, 0, nil, nil); !slices.Equal(p.Batches, []int{1}) || !slices.Equal(p.Threads, []int{1}) {
		t.Errorf("batches %v on threads %v", p.Batches, p.Threads)
	}
}

// Time that the computing threads waited for a core is not the model's. Other threads may wait
// while these compute, as they must on a single core, and that changes nothing.
func TestMeasureWithoutWaiting(t *testing.T) {
	for _, c := range []struct {
		what              string
		compute, held     time.Duration
		otherThreadsWaits time.Duration
		want              float64
	}{
		{"undisturbed", 8 * time.Millisecond, 0, 0, 8000},
		{"held up for 3 of 11 ms", 8 * time.Millisecond, 3 * time.Millisecond, 0, 8000},
		{"other threads wait meanwhile", 8 * time.Millisecond, 0, 8 * time.Millisecond, 8000},
		{"three of them", 8 * time.Millisecond, 0, 24 * time.Millisecond, 8000},
		{"both", 8 * time.Millisecond, 3 * time.Millisecond, 11 * time.Millisecond, 8000},
	} {
		now, cpu, waited := time.Time{}, time.Duration(0), time.Duration(0)
		run := runner(func() {
			now, cpu, waited = now.Add(c.compute+c.held), cpu+c.compute, waited+c.held+c.otherThreadsWaits
		})
		p := Plan{
			Batches: []int{1}, Threads: []int{1}, MinRuns: 3, MaxTime: time.Second, Now: func() time.Time { return now },
			CPU: func() time.Duration { return cpu }, Waited: func() time.Duration { return waited },
		}
		ms, err := Measure(t.Context(), func(int) (Runner, error) { return run, nil }, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if ms[0].Median != c.want {
			t.Errorf("%s: %v µs, want %v", c.what, ms[0].Median, c.want)
		}
	}
}

// runner is a model that calls a function.
type runner func()

func (r runner) Run(context.Context, int) error { r(); return nil }
func (runner) Close() error                     { return nil }
