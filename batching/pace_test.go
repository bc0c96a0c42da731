package batching

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// lone returns a policy with an instance that has executed many batches, each in part of its time in Exec.
func lone(slo time.Duration, exec []time.Duration, part float64) (p *Shared, now time.Time) {
	p, now = NewShared(Options{SLO: slo}), epoch
	p.Up(now, Instance{ID: "a", Config: cluster.Config{Batch: len(exec)}, Exec: exec})
	for id := RequestID(1); id <= 100; id++ {
		p.Add(now, Request{ID: id, Deadline: now.Add(slo)})
		p.Actions(now)
		now = now.Add(time.Duration(part * float64(exec[0])))
		p.Done(now, "a")
		p.Actions(now)
	}
	return p, now
}

// Few batches take as long as Exec. Here most take 60 ms of 100. A request is refused only when it is more
// likely late than in time, and an instance that becomes free before that serves it.
func TestRequestsAreRefusedWhenLikelyLate(t *testing.T) {
	const slo = 400 * time.Millisecond
	for _, c := range []struct {
		free   float64 // when the instance becomes free, in ms before the deadline
		served bool
	}{{120, true}, {95, true}, {65, true}, {55, false}} {
		p, now := lone(slo, []time.Duration{ms(100)}, 0.6)
		due := now.Add(ms(250))
		p.Add(now, Request{ID: 1000, Deadline: now.Add(slo)})
		p.Actions(now)
		p.Add(now, Request{ID: 1001, Deadline: now.Add(slo)})
		p.Actions(now) // It is sent ahead.
		p.Add(now, Request{ID: 1002, Deadline: due})
		at := due.Add(-ms(c.free))
		served := false
		look := func(now time.Time) {
			for _, a := range p.Actions(now) {
				served = served || len(a.Dispatch) == 1 && a.Dispatch[0] == 1002
			}
		}
		for next, ok := p.Next(); ok && next.Before(at); next, ok = p.Next() {
			look(next)
		}
		p.Done(at.Add(-ms(60)), "a")
		p.Done(at, "a")
		look(at)
		if served != c.served || p.Waiting() != 0 {
			t.Errorf("free %v ms before the deadline: served %v, want %v", c.free, served, c.served)
		}
	}
}

// An instance does not idle to save less time than it idles: at 25 requests/s a second request takes 40 ms
// to come and saves 7. With t(1) = 80 ms and t(2) = 84 ms it saves 76 ms.
func TestBatchesWaitOnlyIfThatSavesTime(t *testing.T) {
	const slo = 400 * time.Millisecond
	for _, c := range []struct {
		exec  []time.Duration
		waits bool
	}{{affine(4, ms(7), ms(33)), false}, {affine(4, ms(76), ms(4)), true}} {
		p := NewShared(Options{SLO: slo})
		p.Up(epoch, Instance{ID: "a", Config: cluster.Config{Batch: len(c.exec)}, Exec: c.exec})
		p.Add(epoch, Request{ID: 1, Deadline: epoch.Add(slo)})
		p.Actions(epoch)
		now := epoch
		for id := RequestID(2); now.Before(epoch.Add(3 * time.Second)); id++ {
			now = now.Add(time.Second / 25)
			p.Add(now, Request{ID: id, Deadline: now.Add(slo)})
			p.Cancel(now, id)
		}
		p.Add(now, Request{ID: 1 << 40, Deadline: now.Add(slo)})
		p.Done(now, "a")
		if sent := len(p.Actions(now)) > 0; sent == c.waits {
			t.Errorf("t(1) = %v, t(2) = %v: sent at once: %v", c.exec[0], c.exec[1], sent)
		}
	}
}

// greedy is the share of requests in time if one instance takes whatever waits, up to its largest batch,
// and refuses nothing.
func (p pool) greedy(rate float64, requests int) float64 {
	random := rand.New(rand.NewPCG(3, 11))
	gap, exec := p.gaps(rate, random), p.members[0].Exec
	arrivals := make([]time.Duration, requests)
	for i := 1; i < requests; i++ {
		arrivals[i] = arrivals[i-1] + gap()
	}
	var free time.Duration
	met, warm := 0, requests/10
	for first := 0; first < requests; {
		start, last := max(free, arrivals[first]), first+1
		for last < requests && last-first < len(exec) && arrivals[last] <= start {
			last++
		}
		free = start + time.Duration(float64(exec[last-first-1])*math.Exp(p.sigma*(random.NormFloat64()-2.326)))
		for ; first < last; first++ {
			if first >= warm && free-arrivals[first] <= p.within() {
				met++
			}
		}
	}
	return float64(met) / float64(requests-warm)
}

// A model that takes nearly a core, and gains little in batches: the policy serves more than a server that
// takes whatever waits, and at half of that load requests hardly wait.
func TestSharedServesMoreThanTakingWhatWaits(t *testing.T) {
	const slo = 400 * time.Millisecond
	for _, c := range []struct{ base, each, sigma float64 }{{0, 37, 0.07}, {7, 33, 0.07}, {7, 33, 0.15}, {10, 10, 0.1}} {
		tail := math.Exp(2.326 * c.sigma)
		p := pool{slo: slo, cv: 1, sigma: c.sigma, members: []Instance{{ID: "a", Config: cluster.Config{Batch: 4}, Exec: affine(4, ms(c.base*tail), ms(c.each*tail))}}}
		low, high := 0.0, 1000/c.each
		for high-low > 0.01*high {
			if mid := (low + high) / 2; p.greedy(mid, 10_000) >= 0.99 {
				low = mid
			} else {
				high = mid
			}
		}
		if got := p.offer(SharedName, 1.05*low, 10_000); got.within < 0.99 {
			t.Errorf("%+v: of %.1f requests/s %.4f are in time, taking whatever waits serves %.1f", c, 1.05*low, got.within, low)
		}
		alone := ms(c.base + c.each)
		if got := p.offer(SharedName, 0.5*low, 5_000); got.mean > alone*9/5 {
			t.Errorf("%+v: at %.1f requests/s the mean is %v, alone %v", c, 0.5*low, got.mean, alone)
		}
	}
}

// A Pace finds the median of unequal times, and batches that end at once do not count.
func TestPaceIsTheMedian(t *testing.T) {
	var p Pace
	if got := p.Of(ms(100)); got != ms(100) {
		t.Errorf("without batches: %v", got)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		p.Add(ms(80*math.Exp(0.1*random.NormFloat64())), ms(100))
		p.Add(ms(1), ms(100))
	}
	if got := p.Of(ms(100)); got < ms(75) || got > ms(85) {
		t.Errorf("half of the batches take 80 ms: %v", got)
	}
	for range 100 {
		p.Add(ms(120), ms(100))
	}
	if got := p.Of(ms(100)); got != ms(100) {
		t.Errorf("all batches take 120 ms: %v", got)
	}
}

// Half of the batches take less than the median of a pace, and few less than its quick time, however they vary.
func TestAPaceKnowsQuickBatches(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 1))
	for _, spread := range []float64{0.02, 0.08, 0.2} {
		var p Pace
		below, quickest, n := 0, 0, 0
		for i := range 20_000 {
			real := time.Duration(80e6 * math.Exp(spread*random.NormFloat64()))
			p.Add(real, ms(100))
			if i < 1000 {
				continue
			}
			n++
			if real < p.Of(ms(100)) {
				below++
			}
			if real < p.Quick(ms(100)) {
				quickest++
			}
		}
		part, of := float64(below)/float64(n), float64(quickest)/float64(n)
		if math.Abs(part-0.5) > 0.05 || math.Abs(of-quick) > 0.1 || p.Quick(ms(100)) > p.Of(ms(100)) {
			t.Errorf("spread %v: %.2f take less than the median, %.2f less than the quick time", spread, part, of)
		}
	}
}
