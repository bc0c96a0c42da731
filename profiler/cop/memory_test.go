package cop

import (
	"math"
	"testing"
)

func TestReuse(t *testing.T) {
	curve := Reuse{{4 << 20, 60}, {32 << 20, 80}, {64 << 20, 70}, {256 << 20, 100}}
	for working, want := range map[int64]float64{
		0: 0, 4 << 20: 0, 18 << 20: 0.25, 32 << 20: 0.5,
		64 << 20:  0.5, // 70 after 80 was disturbed
		256 << 20: 1, 1 << 40: 1,
	} {
		if got := curve.Cold(working); math.Abs(got-want) > 1e-9 {
			t.Errorf("%d MiB are cold by %v, not %v", working>>20, got, want)
		}
	}
	if got := curve.ColdShare(256<<20, 32<<20); got != 1 {
		t.Errorf("all of the way from half cold is %v", got)
	}
	if got := curve.ColdShare(18<<20, 32<<20); got != 0 {
		t.Errorf("less than alone is %v", got)
	}
	for _, flat := range []Reuse{nil, {{1, 5}}, {{1, 5}, {2, 4}}} {
		if got := flat.ColdShare(1<<30, 0); got != 0 {
			t.Errorf("%v says %v", flat, got)
		}
	}
}

// The example of UnderQuota's comment.
func TestRefill(t *testing.T) {
	c := Config{Median: 1000, CPU: 1000}
	if got := Refill(20).UnderQuota(c, 24<<20, 500); math.Abs(got-2192) > 1e-9 {
		t.Errorf("the mean is %v µs, not 2192", got)
	}
	if got := Refill(20).UnderQuota(c, 24<<20, 2000); got != 1000 {
		t.Errorf("on whole cores it is %v", got)
	}
	// A long run reloads its data once.
	if got := Refill(20).UnderQuota(Config{Median: 1e6, CPU: 1e6}, 24<<20, 500); math.Abs(got-2*(1e6+480)) > 1e-6 {
		t.Errorf("a long run takes %v", got)
	}
	// NewRefill inverts UnderQuota: a sweep of 24 MiB in 1 ms whose data is gone
	// every 5 ms.
	r := NewRefill(1000, 2192, 24<<20, 500)
	if math.Abs(float64(r)-20) > 1e-9 {
		t.Errorf("refilling takes %v µs a MiB", r)
	}
	for _, r := range []Refill{NewRefill(0, 1, 1, 500), NewRefill(1000, 1500, 24<<20, 500), NewRefill(1, 1, 0, 500)} {
		if r != 0 {
			t.Errorf("of nothing follows %v", r)
		}
	}
}
