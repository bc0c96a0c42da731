package batching

import (
	"fmt"
	"math"
	"slices"
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

// pool is n instances of the model, with Poisson arrivals.
func (m model) pool(n int, slo time.Duration) pool {
	const largest = 32
	p := pool{slo: slo, cv: 1}
	exec := affine(largest, ms(m.base), ms(m.each))
	for i := range n {
		p.members = append(p.members, Instance{ID: cluster.InstanceID(fmt.Sprint(i)), Config: cluster.Config{Batch: largest}, Exec: exec, Rate: 1})
	}
	return p
}

// maxRate is the highest rate, up to most, with 99 % within slo, by bisection.
func maxRate(name string, p pool, most float64) float64 {
	low, high := 0.0, most
	for high-low > 0.03*high {
		mid := (low + high) / 2
		if p.offer(name, mid, 3_000).within >= 0.99 {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// The shared queue serves more than INFless' queues, and much more than one
// request per execution.
func TestSharedServesMore(t *testing.T) {
	const slo = 50 * time.Millisecond
	want := map[string]float64{"dssm": 5, "mnist": 2, "lstm": 1.5}
	for _, m := range models {
		for _, n := range []int{1, 3} {
			p := m.pool(n, slo)
			one := maxRate(OneToOneName, p, 1.05*float64(n)/p.members[0].Exec[0].Seconds())
			infless := maxRate(InFlessName, p, 1.05*p.capacity())
			least := max(0.98*infless, want[m.name]*one)
			t.Logf("%s × %d: one-to-one %.0f, infless %.0f requests/s", m.name, n, one, infless)
			if got := p.offer(SharedName, least, 5_000); got.within < 0.99 {
				t.Errorf("%s × %d: of %.0f requests/s the shared queue serves %.4f in time; one-to-one serves %.0f, infless %.0f", m.name, n, least, got.within, one, infless)
			}
		}
	}
}

// Light load means low latency: at 1 % of the capacity a request hardly waits.
// INFless' batches wait until their timeouts.
func TestLightLoadMeansLowLatency(t *testing.T) {
	slo := 50 * time.Millisecond
	for _, m := range models {
		alone := ms(m.base + m.each)
		if got := m.pool(1, slo).offer(SharedName, 10, 4_000); got.within < 0.999 || got.mean > alone*11/10 {
			t.Errorf("%s: mean latency %v at light load, one execution takes %v", m.name, got.mean, alone)
		}
		if got := m.pool(1, slo).offer(InFlessName, 10, 4_000); got.mean < slo/3 {
			t.Errorf("%s: INFless answers in %v at light load; its batches should wait to fill", m.name, got.mean)
		}
	}
}

// A busy function's batches wait a fiftieth of the SLO to fill. Those of a function
// that is not busy do not wait.
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

// A backlog goes if full batches serve more than arrives, though its urgent heads allow only small ones. Without
// that rule a seventh of the requests here is lost for good: the heads make the batches of four small, which
// makes the next heads urgent.
func TestABacklogGoes(t *testing.T) {
	p := pool{slo: 200 * time.Millisecond, sigma: 0.026, members: slices.Concat(members("small", 31, 4, ms(142), 0.69), members("large", 12, 8, ms(182), 0.54))}
	rate := 0.97 * p.capacity() * math.Exp(2.326*p.sigma)
	backlog := 200
	s := p.simulation(SharedName, rate, 20_000, 5_000)
	steady := p.gaps(rate, s.random)
	s.play(20_000, func() time.Duration {
		if backlog--; backlog > 0 {
			return 0
		}
		return steady()
	})
	if within := float64(s.met) / 15_000; within < 0.99 {
		t.Errorf("of %.0f requests/s, 97 %% of what full batches serve, %.4f are in time after a backlog", rate, within)
	}
}
