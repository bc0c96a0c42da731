package capacity

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// The rate of one instance hardly falls as the load grows, and it rises with the time
// available.
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

// The rest of the execution that a request comes upon is counted once. INFaaS' Inferentia core
// takes 2 requests in 20 ms. At 10/s its load is 10/100 = 0.1. Within 50 ms less the reserve of
// 1 ms, 29 ms are left for waiting: 1.45 executions. A request finds the core busy with a
// probability of at most 2·0.1 = 0.2, and exp(−2·2·(1−0.1)·1.45) = 0.0054 of these wait longer:
// 0.0011 in all, so that one core is enough. With half a turn of 20 ms off the time that is left,
// it is (50 − 1 − 20 − 10)/20 = 0.95, and 0.2·((1 − 0.95) + exp(−2·2·0.9·0.95)) = 0.0165.
func TestPooledCountsTheRestOnce(t *testing.T) {
	up, ok := Production().pooled(2, 20*ms, 20*ms, 50*ms, 10, 0.01)
	if !ok || up < 10 {
		t.Errorf("one core serves %v/s, %v, of 10/s", up, ok)
	}
}

// The number of instances is within one of the least that a simulation needs, where the objective
// leaves time for two executions.
func TestPooledNeedsTheLeast(t *testing.T) {
	const exec = 100 * ms
	o := Production()
	for _, batch := range []int{2, 4, 8} {
		for _, times := range []float64{2.05, 2.5, 3} {
			for _, load := range []float64{0.02, 0.1, 0.3, 0.6, 1, 2, 6} {
				rps := load * float64(batch) / exec.Seconds()
				up, ok := o.pooled(batch, exec, exec, time.Duration(times*float64(exec)/(1-o.Reserve)), rps, 0.01)
				if !ok {
					t.Fatalf("batches of %d do not fit into %v times theirs", batch, times)
				}
				n := max(1, int(math.Ceil(rps/up-1e-9)))
				r := rand.New(rand.NewPCG(1, uint64(1000*load)))
				if late := unluckyPart(r, n, load, batch, times-1); late > 0.025 {
					t.Errorf("load %v in batches of %d, %v times theirs: %v are late at %d instances", load, batch, times, late, n)
				}
				if n > 2 && float64(n-2) > load && unluckyPart(r, n-2, load, batch, times-1) <= 0.01 {
					t.Errorf("load %v in batches of %d, %v times theirs: %d instances, %d are enough", load, batch, times, n, n-2)
				}
			}
		}
	}
}
