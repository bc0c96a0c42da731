package batching

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// objective is the SLO of these tests.
const objective = 200 * time.Millisecond

// alike returns n instances with batches of 8 that take part of the limit of a pooled
// queue, t + t/n ≤ SLO: an instance becomes free every t/n.
func alike(n int, part, share float64) pool {
	full := part * float64(objective-Travel(objective)) * float64(n) / float64(n+1)
	return pool{slo: objective, members: members("i", n, 8, time.Duration(full), share)}
}

// holds checks that the pool answers 99 % in time up to that part of its capacity, and
// also at lower loads. Those have less chance, and fewer requests suffice.
func holds(t *testing.T, p pool, limit float64) {
	t.Helper()
	for _, load := range []float64{0.1, 0.3, 0.6, 0.8, 0.95} {
		load = min(load, limit)
		requests := max(1000, 125*len(p.members))
		if load == limit && p.cv > 0 {
			requests = max(3000, requests)
		}
		if got := p.offer(SharedName, load*p.capacity(), requests); got.within < 0.99 {
			t.Errorf("%.4f in time at %.2f of the capacity, in batches of %.1f", got.within, load, got.batch)
		}
		if load == limit {
			return
		}
	}
}

// INFless §3.2 requires t_exec ≤ t_slo/2, because each instance's queue fills at its
// own rate. A pooled queue fills n times as fast, so t may be nearly the whole
// objective: t + t/n ≤ t_slo. It serves steady requests nearly up to the instances'
// capacity. With Poisson requests, more instances come closer to it.
func TestAPooledQueueServesNearItsCapacity(t *testing.T) {
	poisson := map[int]float64{1: 0.55, 2: 0.7, 4: 0.8, 8: 0.85, 32: 0.93}
	for _, n := range []int{1, 2, 4, 8, 32} {
		for _, share := range []float64{0.3, 0.6, 0.95} {
			t.Run(fmt.Sprintf("%d instances, one request takes %.2f of eight", n, share), func(t *testing.T) {
				p := alike(n, 0.95, share)
				p.sigma = 0.03
				holds(t, p, 0.95)
				p.cv = 1
				holds(t, p, poisson[n])
			})
		}
	}
}

// Different instances share the queue, too.
func TestDifferentInstancesShareTheQueue(t *testing.T) {
	type some struct {
		n, b  int
		ms    float64
		share float64
	}
	for _, c := range []struct {
		mix             []some
		steady, poisson float64
	}{
		{[]some{{2, 16, 150, 0.6}, {2, 2, 30, 0.8}}, 0.9, 0.8},
		{[]some{{1, 32, 120, 0.5}, {4, 4, 60, 0.6}}, 0.9, 0.85},
		{[]some{{4, 16, 150, 0.3}, {2, 4, 80, 0.4}}, 0.9, 0.8},
		{[]some{{3, 8, 140, 0.6}, {3, 8, 100, 0.6}}, 0.95, 0.85},
		{[]some{{1, 16, 160, 0.6}, {8, 1, 20, 1}}, 0.95, 0.9},
		{[]some{{2, 8, 140, 0.3}, {2, 4, 120, 0.5}, {2, 1, 40, 1}}, 0.95, 0.85},
		{[]some{{8, 16, 160, 0.6}, {8, 4, 90, 0.6}}, 0.9, 0.85},
	} {
		t.Run(fmt.Sprint(c.mix), func(t *testing.T) {
			p := pool{slo: objective, sigma: 0.03}
			for i, s := range c.mix {
				p.members = append(p.members, members(strings.Repeat("x", i+1), s.n, s.b, ms(s.ms), s.share)...)
			}
			holds(t, p, c.steady)
			p.cv = 1
			holds(t, p, c.poisson)
			if got := p.offer(SharedName, 1.5*p.capacity(), 5000); got.within*1.5 < 0.85 {
				t.Errorf("at 1.5 of its capacity it serves %.2f of it", got.within*1.5)
			}
		})
	}
}

// Under overload batches stay full, and requests that cannot be in time are rejected.
// The rate served in time is about the capacity.
func TestOverloadKeepsBatchesFull(t *testing.T) {
	for _, n := range []int{1, 2, 8, 32} {
		for _, share := range []float64{0.3, 0.6, 0.95} {
			for _, load := range []float64{1.1, 1.5, 5} {
				p := alike(n, 0.95, share)
				p.cv = 1
				if got := p.offer(SharedName, load*p.capacity(), max(2000, 125*n)); got.within*load < 0.88 {
					t.Errorf("%d instances, one takes %.2f of eight: at %.1f of the capacity it serves %.2f of it, in batches of %.1f", n, share, load, got.within*load, got.batch)
				}
			}
		}
	}
}

// A burst on idle instances first goes out one by one. The batches must not stay
// small.
func TestSmallBatchesDoNotLast(t *testing.T) {
	p := alike(32, 0.85, 0.6)
	if got := p.offer(SharedName, 0.9*p.capacity(), 20_000); got.within < 0.995 || got.batch < 7.5 {
		t.Errorf("%.4f in time, in batches of %.2f", got.within, got.batch)
	}
}

// Below a tenth of the capacity hardly any request waits.
func TestNobodyWaitsForNothing(t *testing.T) {
	for _, n := range []int{2, 4, 8} {
		p := alike(n, 0.9, 0.6)
		p.cv = 1
		alone := p.members[0].Exec[0]
		if got := p.offer(SharedName, 0.05*p.capacity(), 5000); got.mean > alone*11/10 {
			t.Errorf("%d instances: mean latency %v, one execution takes %v", n, got.mean, alone)
		}
	}
}

// The way to the instances costs no capacity: the next batch is there when the one
// before is done.
func TestTheWayToInstancesIsHidden(t *testing.T) {
	for _, n := range []int{1, 4, 20} {
		p := pool{slo: 50 * time.Millisecond, members: members("i", n, 4, ms(3.3), 0.9), overhead: 500 * time.Microsecond}
		holds(t, p, 0.95)
	}
}
