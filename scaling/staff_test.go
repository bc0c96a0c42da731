package scaling

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
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
	testCrew(t, 0.01, 0.02, 0.3, 1, 3, 10, 40, 100)
	testCrew(t, 0.1, 3)
	testCrew(t, 0.001, 3, 10)
	if got := crew(2, 1, 0.5, 0.01); math.Abs(got-4.41) > 0.01 {
		t.Errorf("the example: %v, want 4.41", got)
	}
}

func testCrew(t *testing.T, late float64, loads ...float64) {
	t.Helper()
	for _, batch := range []int{1, 4} {
		for _, load := range loads {
			for _, patience := range []float64{0.1, 0.3, 1} {
				if batch > 1 && load > 10 {
					continue // There it is for the policy to fill batches.
				}
				r := rand.New(rand.NewPCG(1, uint64(1000*load)))
				n := int(math.Ceil(crew(load, float64(batch), patience, late) - 1e-9))
				if got := unluckyPart(r, n, load, batch, patience); got > 2*late {
					t.Errorf("%v late, load %v in batches of %d, patience %v: %v wait too long at %d instances", late, load, batch, patience, got, n)
				}
				least := n
				for least > 1 && float64(least-1) > load && unluckyPart(r, least-1, load, batch, patience) <= late {
					least--
				}
				if float64(n) > 1.35*float64(least)+2 {
					t.Errorf("%v late, load %v in batches of %d, patience %v: %d instances, %d would do", late, load, batch, patience, n, least)
				}
			}
		}
	}
}

// What one instance serves of a load hardly falls as the load grows, and the more
// time there is, the more it serves.
func TestPooled(t *testing.T) {
	o := Production()
	last := 0.0
	for rps := 1.0; rps < 1e5; rps *= 1.3 {
		up, ok := o.pooled(4, 60*ms, 50*ms, 200*ms, rps, 0.01)
		if !ok || up < last*(1-0.2) || up > 80 {
			t.Errorf("%v/s: %v, %v after %v", rps, up, ok, last)
		}
		if tight, ok := o.pooled(4, 60*ms, 50*ms, 150*ms, rps, 0.01); ok && tight > up*(1+1e-9) {
			t.Errorf("%v/s: %v within 150 ms, %v within 200 ms", rps, tight, up)
		}
		last = up
	}
	if last < 0.98*80 {
		t.Errorf("of a large load it serves %v, want nearly 80", last)
	}
	// A batch of 4 in 150 ms: alone, a request might wait for 150 ms more; at
	// 1000/s, for no longer than 4 ms.
	if _, ok := o.pooled(4, 150*ms, 150*ms, 200*ms, 10, 0.01); ok {
		t.Error("t_exec = 150 ms within 200 ms at 10/s")
	}
	if _, ok := o.pooled(4, 150*ms, 150*ms, 200*ms, 1000, 0.01); !ok {
		t.Error("t_exec = 150 ms does not do within 200 ms at 1000/s")
	}
	if up, ok := o.pooled(8, time.Second, 0, 0, 3, 0.01); !ok || up != 8 {
		t.Errorf("without an SLO: %v, %v", up, ok)
	}
}

// The more requests an objective is meant for, the more instances a load gets, and
// never fewer than its work fills. 0 is the 99th percentile.
func TestPercentile(t *testing.T) {
	nodes := []cluster.Node{node("a", 64000, 0, 64<<30)}
	started := func(percentile float64) float64 {
		f := Function{Name: "f", SLO: 60 * ms, Percentile: percentile, Queue: LateBound, Rate: 100, Waiting: 1, Configs: []Candidate{config(1, 1000, 0, 40*ms)}}
		p := New(DefaultSettings()).Scale(epoch, []Function{f}, nodes)
		if len(p.Unplaced) > 0 {
			t.Errorf("%v.: %v", percentile, p.Unplaced)
		}
		return float64(len(p.Start))
	}
	last := 4.4 // 110/s · 40 ms
	for _, percentile := range []float64{-5, 50, 90, 95, 99, 99.9, 99.99} {
		n := started(percentile)
		if percentile > 0 && (n < last || percentile > 90 && n == last) {
			t.Errorf("%v.: %v instances after %v", percentile, n, last)
		}
		if percentile > 0 {
			last = n
		}
	}
	if started(0) != started(99) || started(math.NaN()) != started(99) || started(100) != started(99.99) || started(1) != started(50) {
		t.Error("0 and no number are not the 99th percentile, or 100 and 1 not the last that can be said")
	}
	f := Function{Name: "f", SLO: 60 * ms, Percentile: 99.9, Queue: LateBound, Rate: 100, Waiting: 1, Configs: []Candidate{config(1, 1000, 0, 40*ms)}}
	e := New(DefaultSettings())
	many := len(e.Scale(epoch, []Function{f}, nodes).Start)
	if f.Percentile = 50; len(e.Scale(epoch.Add(time.Second), []Function{f}, nodes).Start) >= many {
		t.Error("what was remembered for one percentile is taken for another")
	}
}
