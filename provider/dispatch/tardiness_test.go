package dispatch

import (
	"testing"
	"time"
)

// Of exchanges of 4 ms of which 1 in 50 takes 30 ms the 99th percentile is some 30 ms: one
// is overdue at three times that. While little is known, at six times the prediction.
func TestOverdueFollowsTheDistribution(t *testing.T) {
	var seen tardiness
	const predicted = 4 * time.Millisecond
	if got := seen.overdue(predicted); got != 24*time.Millisecond {
		t.Errorf("of nothing: %v", got)
	}
	for i := range 10_000 {
		took := predicted
		if i%50 == 0 {
			took = 30 * time.Millisecond
		}
		seen.add(predicted, took)
	}
	// 30/4 is 2^2.9, in the step up to 2^3.
	if got := seen.overdue(predicted); got != 96*time.Millisecond {
		t.Errorf("with a tail: %v", got)
	}
	for range 10_000 {
		seen.add(predicted, predicted/2)
	}
	if got := seen.overdue(predicted); got != minOverdue {
		t.Errorf("once the tail is long gone: %v", got)
	}
}

// FuzzTardiness: whatever is seen, an exchange is not overdue before the floor and the
// prediction, and the counts stay bounded.
func FuzzTardiness(f *testing.F) {
	f.Add(int64(1), int64(5), uint16(300))
	f.Fuzz(func(t *testing.T, predicted, took int64, n uint16) {
		var seen tardiness
		p, d := time.Duration(predicted%int64(time.Minute)), time.Duration(took%int64(time.Minute))
		for range int(n) * 8 {
			seen.add(p, d)
		}
		if got := seen.overdue(p); got < minOverdue || got < p {
			t.Errorf("overdue after %v of %v", got, p)
		}
		if seen.seen > maxSeen {
			t.Errorf("%d seen", seen.seen)
		}
	})
}
