package batching

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// ends is a heap of executing batches; the one that ends first is first.
type ends []struct {
	at time.Duration
	in int
}

func (e *ends) push(at time.Duration, in int) {
	*e = append(*e, struct {
		at time.Duration
		in int
	}{at, in})
	h := *e
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if h[up].at <= h[i].at {
			return
		}
		h[up], h[i] = h[i], h[up]
		i = up
	}
}

func (e *ends) pop() (in int) {
	h := *e
	in = h[0].in
	last := len(h) - 1
	h[0] = h[last]
	h = h[:last]
	*e = h
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if h[c].at < h[least].at {
				least = c
			}
		}
		if least == i {
			return in
		}
		h[least], h[i] = h[i], h[least]
		i = least
	}
}

// BenchmarkPolicies offers nine tenths of what n instances serve in full batches. It
// reports the time for each request: its Add, and its share of Actions and Done.
func BenchmarkPolicies(b *testing.B) {
	for _, name := range Names() {
		for _, n := range []int{1, 16, 256, 1024, 2000} {
			for _, size := range []int{8, 32} {
				b.Run(fmt.Sprintf("%s/instances=%d/batch=%d", name, n, size), func(b *testing.B) { offerSteadily(b, name, n, size, 0.9) })
			}
		}
	}
}

func offerSteadily(b *testing.B, name string, n, size int, load float64) {
	const slo = 200 * time.Millisecond
	p, err := New(name, Options{SLO: slo})
	if err != nil {
		b.Fatal(err)
	}
	all := members("function-0123456789-", n, size, 80*time.Millisecond, 0.6)
	index := make(map[cluster.InstanceID]int, n)
	rate := load * float64(n*size) / 0.08
	if name == OneToOneName {
		rate = load * float64(n) / all[0].Exec[0].Seconds()
	}
	for i, in := range all {
		in.Rate, in.Timeout = rate/float64(n), 50*time.Millisecond
		index[in.ID] = i
		p.Up(epoch, in)
	}
	free := make([]time.Duration, n)
	gap := time.Duration(float64(time.Second) / rate)
	var running ends
	var at, next time.Duration
	batches, executed, late := 0, 0, 0
	b.ReportAllocs()
	b.ResetTimer()
	began := processor()
	for sent := 0; sent < b.N; {
		at = next
		what := 0
		if len(running) > 0 && running[0].at <= at {
			what, at = 1, running[0].at
		}
		if t, ok := p.Next(); ok && t.Before(epoch.Add(at)) {
			what, at = 2, t.Sub(epoch)
		}
		now := epoch.Add(at)
		switch what {
		case 0:
			sent++
			p.Add(now, Request{ID: RequestID(sent), Deadline: now.Add(slo)})
			next += gap
		case 1:
			p.Done(now, all[running.pop()].ID)
		}
		for _, a := range p.Actions(now) {
			if a.Dispatch == nil {
				late++
				continue
			}
			i := index[a.Instance]
			free[i] = max(free[i], at) + all[i].Exec[len(a.Dispatch)-1]
			running.push(free[i], i)
			batches, executed = batches+1, executed+len(a.Dispatch)
		}
	}
	b.StopTimer()
	// Of processor time, which others on the machine do not count in.
	b.ReportMetric(float64(b.N)/(processor()-began).Seconds(), "requests/cpu-s")
	b.ReportMetric(float64(executed)/float64(max(1, batches)), "requests/batch")
	b.ReportMetric(float64(late)/float64(b.N), "late")
}

// processor is the processor time of this process.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
