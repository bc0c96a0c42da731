package control

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// A part that jumps shows within a few requests, however many come in a second.
func TestPartFollowsJumps(t *testing.T) {
	for _, gap := range []time.Duration{time.Millisecond, 25 * time.Millisecond, 200 * time.Millisecond} {
		var p part
		for range 1000 {
			p.read(0, 1, gap)
		}
		for n := 1; n <= 40; n++ {
			p.read(1, 1, gap)
			switch got := p.settle(); {
			case n == 2 && got > 0.05:
				t.Errorf("%v: %.2f after two requests", gap, got)
			case n == 6 && got < 0.5, n == 12 && got < 0.6, n == 40 && got < 0.85:
				t.Errorf("%v: %.2f after %d requests", gap, got, n)
			}
		}
	}
}

// A steady part looks steady.
func TestPartIsSteady(t *testing.T) {
	for _, want := range []float64{0.01, 0.1, 0.5, 0.9} {
		r := rand.New(rand.NewPCG(1, uint64(100*want)))
		var p part
		off, high := 0.0, 0.0
		const n = 100_000
		for i := range n {
			belong := 0.0
			if r.Float64() < want {
				belong = 1
			}
			p.read(belong, 1, 10*time.Millisecond)
			if got := p.settle(); i > 1000 {
				off += math.Abs(got-want) / n
				if got > want+0.3 {
					high += 1. / n
				}
			}
		}
		if chance := math.Sqrt(want * (1 - want)); off > 0.05*chance || high > 0.002 {
			t.Errorf("%v: off by %.3f on average, and by 0.3 too high in %.4f of the reads", want, off, high)
		}
		t.Logf("%v: off by %.4f on average, too high in %.5f", want, off, high)
	}
}
