package sim

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The example of run's comment, and executions after it.
func TestQuota(t *testing.T) {
	const ms = time.Millisecond
	quarter := Quota{Part: 2500 * time.Microsecond, Period: 10 * ms}
	var b budget
	for _, c := range []struct{ begin, work, end time.Duration }{
		{1 * ms, 4 * ms, 11500 * time.Microsecond},                   // 2.5 ms, and 1.5 ms in the next period
		{11500 * time.Microsecond, 1 * ms, 12500 * time.Microsecond}, // what is left of that one
		{12500 * time.Microsecond, 1 * ms, 21 * ms},                  // which is spent
		{39 * ms, 1 * ms, 40 * ms},                                   // to the end of a period
		{40 * ms, 5 * ms, 52500 * time.Microsecond},                  // two periods' parts
		{100 * ms, 6 * ms, 121 * ms},                                 // three
		{200*ms + 9*ms, 2 * ms, 211 * ms},                            // across a border without a pause
		{300 * ms, 0, 300 * ms},
	} {
		if got := b.run(quarter, c.begin, c.work); got != c.end {
			t.Errorf("%v at %v: over at %v, want %v", c.work, c.begin, got, c.end)
		}
	}
	for _, none := range []Quota{{}, {Part: 10 * ms, Period: 10 * ms}, {Part: 20 * ms, Period: 10 * ms}} {
		if got := new(budget).run(none, ms, 50*ms); got != 51*ms {
			t.Errorf("%+v holds up: %v", none, got)
		}
	}
}

// In the long run an instance executes for its part of the time, whatever the load.
func TestQuotaHolds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, part := range []time.Duration{1, 250, 500, 999} {
		q := Quota{Part: part * time.Millisecond / 100, Period: 10 * time.Millisecond}
		var b budget
		now, done := time.Duration(0), time.Duration(0)
		for now < 10*time.Second {
			work := time.Duration(random.Int64N(int64(3 * time.Millisecond)))
			now = b.run(q, now, work)
			done += work
		}
		if got, want := float64(done)/float64(now), float64(q.Part)/float64(q.Period); got > want*1.01 || got < want*0.99 {
			t.Errorf("%+v: executed %.4f of the time, want %.4f", q, got, want)
		}
	}
}
