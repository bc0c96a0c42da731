package local

import (
	"testing"
	"time"
)

// 800 requests/s that take the provider 0.4 ms each are 320m; a quarter more is kept, for
// half a minute after they have ended.
func TestReserveFollowsTheHighestUse(t *testing.T) {
	var r reserve
	now, used := time.Unix(1_000_000, 0), time.Duration(0)
	if got := r.of(2000); got != 250 {
		t.Errorf("before anything was seen %dm are kept, want 250", got)
	}
	for second := range 60 {
		r.observe(now, used)
		want := 250
		if second > 0 && second <= 40 {
			want = 400
		}
		if got := r.of(2000); got != want {
			t.Fatalf("after %d s %dm are kept, want %d", second, got, want)
		}
		now = now.Add(time.Second)
		if second < 10 {
			used += 320 * time.Millisecond
		}
	}
}

// A small machine keeps less, and no machine more than half.
func TestReserveIsBounded(t *testing.T) {
	var r reserve
	now := time.Unix(1_000_000, 0)
	if got := r.of(1000); got != 200 {
		t.Errorf("of one core %dm are kept, want 200", got)
	}
	r.observe(now, 0)
	r.observe(now.Add(time.Second), 2*time.Second)
	if got := r.of(2000); got != 1000 {
		t.Errorf("of two cores that the provider uses %dm are kept, want 1000", got)
	}
	r.observe(now.Add(2*time.Second), 0) // Another group of the same name: nothing is known.
	if got := len(r.seen); got != 1 {
		t.Errorf("%d readings count", got)
	}
	if !r.due(now.Add(3*time.Second)) || r.due(now.Add(2*time.Second)) {
		t.Error("a reading is due half a second after the one before")
	}
}
