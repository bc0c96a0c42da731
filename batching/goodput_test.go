package batching

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// model is a batch time as a straight line through measured points (median, one
// thread, AVX-512 CPU): t(b) = base + b·each, in ms.
type model struct {
	name       string
	base, each float64
}

var models = []model{{"dssm", 0.77, 0.048}, {"mnist", 0.40, 0.16}, {"lstm", 1.0, 0.90}}

// simulate offers Poisson arrivals at rate for a while to n instances and
// returns the share answered within slo and the mean latency of those.
func simulate(name string, m model, n int, rate float64, slo time.Duration) (within float64, mean time.Duration) {
	const largest = 32
	p, err := New(name, Options{SLO: slo})
	if err != nil {
		panic(err)
	}
	exec := affine(largest, ms(m.base), ms(m.each))
	free := make(map[cluster.InstanceID]time.Time)
	type end struct {
		at time.Time
		id cluster.InstanceID
	}
	var ends []end
	for i := range n {
		p.Up(epoch, Instance{ID: cluster.InstanceID(fmt.Sprint(i)), Config: cluster.Config{Batch: largest}, Exec: exec, Rate: rate / float64(n)})
	}
	random := rand.New(rand.NewPCG(7, uint64(rate)))
	const requests = 15_000
	arrived := make([]time.Time, requests+1)
	now, next, sent, met := epoch, epoch, 0, 0
	var total time.Duration
	act := func() {
		for _, a := range p.Actions(now) {
			if a.Dispatch == nil {
				continue
			}
			start := now
			if f := free[a.Instance]; f.After(start) {
				start = f
			}
			done := start.Add(exec[len(a.Dispatch)-1])
			free[a.Instance] = done
			ends = append(ends, end{done, a.Instance})
			for _, id := range a.Dispatch {
				if l := done.Sub(arrived[id]); l <= slo {
					met++
					total += l
				}
			}
		}
	}
	for sent < requests || p.Waiting() > 0 {
		what, at := -1, next
		if sent == requests {
			at = epoch.Add(1000 * time.Hour)
		}
		for i, e := range ends {
			if e.at.Before(at) {
				what, at = i, e.at
			}
		}
		if t, ok := p.Next(); ok && t.Before(at) {
			what, at = -2, t
		}
		now = at
		switch what {
		case -1:
			sent++
			arrived[sent] = now
			p.Add(now, Request{ID: RequestID(sent), Deadline: now.Add(slo)})
			next = now.Add(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		case -2:
		default:
			id := ends[what].id
			ends = append(ends[:what], ends[what+1:]...)
			p.Done(now, id)
		}
		act()
	}
	return float64(met) / requests, total / time.Duration(max(met, 1))
}

// maxRate is the highest rate with 99 % within slo, by bisection.
func maxRate(name string, m model, n int, slo time.Duration) float64 {
	low, high := 0.0, 40_000.0*float64(n)
	for high-low > 0.02*high {
		mid := (low + high) / 2
		if within, _ := simulate(name, m, n, mid, slo); within >= 0.99 {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// The shared queue serves more than INFless' queues, and much more than one
// request per execution, for tight and for loose objectives.
func TestSharedServesMore(t *testing.T) {
	want := map[string]float64{"dssm": 5, "mnist": 2, "lstm": 1.5}
	for _, m := range models {
		for _, n := range []int{1, 3} {
			for _, slo := range []time.Duration{50 * time.Millisecond} {
				one := maxRate(OneToOneName, m, n, slo)
				infless := maxRate(InFlessName, m, n, slo)
				shared := maxRate(SharedName, m, n, slo)
				t.Logf("%s × %d, SLO %v: one-to-one %.0f, infless %.0f, shared %.0f requests/s", m.name, n, slo, one, infless, shared)
				if shared < infless*0.98 {
					t.Errorf("%s × %d, SLO %v: shared serves %.0f, infless %.0f", m.name, n, slo, shared, infless)
				}
				if shared < want[m.name]*one {
					t.Errorf("%s × %d: shared serves %.0f, one-to-one %.0f", m.name, n, shared, one)
				}
			}
		}
	}
}

// Light load means low latency: at 1 % of the capacity a request waits for
// nearly nothing, where INFless' batches wait until their timeouts.
func TestLightLoadMeansLowLatency(t *testing.T) {
	slo := 50 * time.Millisecond
	for _, m := range models {
		alone := ms(m.base + m.each)
		if within, mean := simulate(SharedName, m, 1, 10, slo); within < 0.999 || mean > alone*11/10 {
			t.Errorf("%s: mean latency %v at light load, one execution takes %v", m.name, mean, alone)
		}
		if _, mean := simulate(InFlessName, m, 1, 10, slo); mean < slo/3 {
			t.Errorf("%s: INFless answers in %v at light load; its batches should wait to fill", m.name, mean)
		}
	}
}

func BenchmarkShared(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		simulate(SharedName, models[0], 4, 20_000, 50*time.Millisecond)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/15_000, "ns/request")
}

// A busy function's batches wait a fiftieth of the SLO to fill; those of one
// that is not busy wait for nothing.
func TestABusyFunctionFillsItsBatches(t *testing.T) {
	const slo = 50 * time.Millisecond
	for rate, waits := range map[float64]bool{1000: false, 6000: true} {
		p := NewShared(Options{SLO: slo})
		p.Up(epoch, Instance{ID: "a", Config: cluster.Config{Batch: 16}, Exec: affine(16, ms(0.5), ms(0.06))})
		// Full batches serve 16/1.46 ms = 10,959 requests/s. The rate is learned
		// while the instance executes something else.
		p.Add(epoch, Request{ID: 1, Deadline: epoch.Add(slo)})
		p.Actions(epoch)
		now := epoch
		for id := RequestID(2); now.Before(epoch.Add(3 * time.Second)); id++ {
			now = now.Add(time.Duration(float64(time.Second) / rate))
			p.Add(now, Request{ID: id, Deadline: now.Add(slo)})
			p.Cancel(now, id)
		}
		p.Add(now, Request{ID: 1 << 40, Deadline: now.Add(slo)})
		p.Done(now, "a")
		if sent := len(p.Actions(now)) > 0; sent == waits {
			t.Errorf("at %v requests/s: sent at once: %v", rate, sent)
		}
		if at, ok := p.Next(); waits && (!ok || at != now.Add(slo/50)) {
			t.Errorf("at %v requests/s it waits until %v after, want %v", rate, at.Sub(now), slo/50)
		}
		if waits && len(p.Actions(now.Add(slo/50))) == 0 {
			t.Errorf("at %v requests/s it waits for longer", rate)
		}
	}
}
