package scaling

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// unluckyPart simulates requests that come at random, load per unit of time in
// batches' work, to one queue with n instances that take up to batch at once for a
// unit of time. It returns the part that waits longer than patience.
func unluckyPart(r *rand.Rand, n int, load float64, batch int, patience float64) float64 {
	free := make([]float64, n)
	arrivals := make([]float64, 200_000)
	now := 0.0
	for i := range arrivals {
		now += r.ExpFloat64() / (load * float64(batch))
		arrivals[i] = now
	}
	late := 0
	for i := 0; i < len(arrivals); {
		first := 0
		for k := range free {
			if free[k] < free[first] {
				first = k
			}
		}
		start := max(free[first], arrivals[i])
		free[first] = start + 1
		for taken := 0; taken < batch && i < len(arrivals) && arrivals[i] <= start; taken++ {
			if start-arrivals[i] > patience {
				late++
			}
			i++
		}
	}
	return float64(late) / float64(len(arrivals))
}

// As many instances as the formula says are enough, and no more than one or two
// too many.
func TestCrew(t *testing.T) {
	for _, batch := range []int{1, 4} {
		for _, load := range []float64{0.02, 0.3, 1, 3, 10, 40, 100} {
			for _, patience := range []float64{0.1, 0.3, 1} {
				if batch > 1 && load > 10 {
					continue // There it is for the policy to fill batches.
				}
				r := rand.New(rand.NewPCG(1, uint64(1000*load)))
				n := int(math.Ceil(crew(load, float64(batch), patience) - 1e-9))
				if got := unluckyPart(r, n, load, batch, patience); got > 2*unlucky {
					t.Errorf("load %v in batches of %d, patience %v: %v wait too long at %d instances", load, batch, patience, got, n)
				}
				least := n
				for least > 1 && float64(least-1) > load && unluckyPart(r, least-1, load, batch, patience) <= unlucky {
					least--
				}
				if float64(n) > 1.35*float64(least)+2 {
					t.Errorf("load %v in batches of %d, patience %v: %d instances, %d would do", load, batch, patience, n, least)
				}
			}
		}
	}
	if got := crew(2, 1, 0.5); math.Abs(got-4.41) > 0.01 {
		t.Errorf("the example: %v, want 4.41", got)
	}
}

// What one instance serves of a load hardly falls as the load grows, and the more
// time there is, the more it serves.
func TestPooled(t *testing.T) {
	o := Production()
	last := 0.0
	for rps := 1.0; rps < 1e5; rps *= 1.3 {
		up, ok := o.pooled(4, 60*ms, 50*ms, 200*ms, rps)
		if !ok || up < last*(1-0.2) || up > 80 {
			t.Errorf("%v/s: %v, %v after %v", rps, up, ok, last)
		}
		if tight, ok := o.pooled(4, 60*ms, 50*ms, 150*ms, rps); ok && tight > up*(1+1e-9) {
			t.Errorf("%v/s: %v within 150 ms, %v within 200 ms", rps, tight, up)
		}
		last = up
	}
	if last < 0.98*80 {
		t.Errorf("of a large load it serves %v, want nearly 80", last)
	}
	// A batch of 4 in 150 ms: alone, a request might wait for 150 ms more; at
	// 1000/s, for no longer than 4 ms.
	if _, ok := o.pooled(4, 150*ms, 150*ms, 200*ms, 10); ok {
		t.Error("t_exec = 150 ms within 200 ms at 10/s")
	}
	if _, ok := o.pooled(4, 150*ms, 150*ms, 200*ms, 1000); !ok {
		t.Error("t_exec = 150 ms does not do within 200 ms at 1000/s")
	}
	if up, ok := o.pooled(8, time.Second, 0, 0, 3); !ok || up != 8 {
		t.Errorf("without an SLO: %v, %v", up, ok)
	}
}
