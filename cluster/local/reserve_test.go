package local

import (
	"testing"
	"time"
)

// 1,500 requests/s of 0.25 ms each use 375m, so 250m are reserved. 2,400 requests/s use
// 600m, so 500m are reserved, from two seconds after they begin to ten after they end.
func TestReserveFollowsTheHighestUse(t *testing.T) {
	var r reserve
	now, used := time.Unix(1_000_000, 0), time.Duration(0)
	for half := range 120 {
		r.observe(now, used)
		want := 0
		switch second := half / 2; {
		case half >= 4 && second < 10:
			want = 250
		case second >= 10 && second < 12:
			want = r.of(1000) // It rises.
		case second >= 12 && second <= 28:
			want = 500
		case second > 28 && second <= 31:
			want = r.of(1000) // It falls.
		}
		if got := r.of(1000); got != want {
			t.Fatalf("after %.1f s %dm are kept, want %d", float64(half)/2, got, want)
		}
		if got := r.of(2000); got < 250 {
			t.Fatalf("of two cores %dm are kept", got)
		}
		now = now.Add(500 * time.Millisecond)
		if half < 20 {
			used += 375 * time.Millisecond / 2
		} else if half < 40 {
			used += 600 * time.Millisecond / 2
		}
	}
}

// The reserve is at most half of the machine, and a short burst does not count.
func TestReserveIsBounded(t *testing.T) {
	var r reserve
	now := time.Unix(1_000_000, 0)
	for range 5 {
		r.observe(now, r.used+2*reservePause)
		now = now.Add(reservePause)
	}
	if got := r.of(2000); got != 1000 {
		t.Errorf("of two cores that the provider uses %dm are kept, want 1000", got)
	}
	if got := r.of(1000); got != 500 {
		t.Errorf("of one core %dm are kept, want 500", got)
	}
	var brief reserve
	brief.observe(now, 0)
	brief.observe(now.Add(reservePause), reservePause)
	for i := range 6 {
		brief.observe(now.Add(time.Duration(i+2)*reservePause), reservePause)
	}
	if got := brief.of(1000); got != 250 {
		t.Errorf("for half a second's work in two %dm are kept, want 250", got)
	}
	before := len(brief.seen)
	brief.observe(now.Add(8*reservePause), 0) // Another group of the same name: nothing is known.
	if len(brief.seen) != before {
		t.Error("a use that falls counts")
	}
	if !brief.due(now.Add(9*reservePause)) || brief.due(now.Add(8*reservePause)) {
		t.Error("a reading is due half a second after the one before")
	}
}
