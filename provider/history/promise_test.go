package history

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// promiseOf counts one reading a second.
func promiseOf(seconds int, each func(second int) (all, missed uint64)) *Promise {
	p, counts := &Promise{}, Counts{}
	p.Add(began, counts)
	for i := range seconds {
		all, missed := each(i)
		counts.Arrived, counts.InTime, counts.Late = counts.Arrived+all, counts.InTime+all-missed, counts.Late+missed
		p.Add(began+1+int64(i), counts)
	}
	return p
}

func TestKept(t *testing.T) {
	p := promiseOf(4812, func(second int) (uint64, uint64) {
		if second%100 < 8 {
			return 10, 1
		}
		return 10, 0
	})
	k, ok := p.Kept()
	if !ok || k.Requests != 48_120 || math.Abs(k.Percent-99.2) > 0.05 || k.From >= k.Percent || k.To <= k.Percent {
		t.Fatalf("%+v, %v", k, ok)
	}
	want := "promised 99 % within 200ms; kept 99.18 % of 48,120 since 2026-09-21 14:13:23 UTC; 95 % confident of 98.9–99.37 %"
	if got := k.Sentence(99, 200*time.Millisecond); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	p.Restart(began+5000, p.last)
	if _, ok := p.Kept(); ok {
		t.Error("it has seen no request since another objective was stated")
	}
	if _, ok := (&Promise{}).Kept(); ok {
		t.Error("it has seen nothing at all")
	}
	if k, _ := promiseOf(5, func(int) (uint64, uint64) { return 1, 0 }).Kept(); k.Percent != 100 || k.To != 100 || k.From > 60 {
		t.Errorf("after five requests: %+v", k)
	}
}

// 95 of 100 intervals hold the true share, also where misses come together. Intervals of independent requests
// would not.
func TestIntervalsHoldTheTrueShare(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for name, c := range map[string]struct{ busy, then, otherwise float64 }{
		"independent": {0, 0, 0.01}, "together": {0.02, 0.4, 0.002},
	} {
		const runs = 300
		held := 0
		truth := 100 * (1 - c.busy*c.then - (1-c.busy)*c.otherwise)
		for range runs {
			busy := false
			p := promiseOf(3600, func(second int) (uint64, uint64) {
				if second%5 == 0 { // A disturbance takes five seconds.
					busy = r.Float64() < c.busy
				}
				missed, rate := uint64(0), c.otherwise
				if busy {
					rate = c.then
				}
				for range 10 {
					if r.Float64() < rate {
						missed++
					}
				}
				return 10, missed
			})
			if k, _ := p.Kept(); k.From <= truth && truth <= k.To {
				held++
			}
		}
		if part := float64(held) / runs; part < 0.90 || part > 0.99 {
			t.Errorf("%s: %.3f of the intervals hold %.2f %%", name, part, truth)
		}
	}
}
