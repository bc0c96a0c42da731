package systems

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/coldstart"
)

// recorder is a cold-start policy that records its calls.
type recorder struct {
	coldstart.Policy
	observed []time.Duration
	asked    []time.Time
	windows  coldstart.Windows
}

func (r *recorder) Observe(_ time.Time, _ string, idle time.Duration) {
	r.observed = append(r.observed, idle)
}

func (r *recorder) Windows(last time.Time, _ string) coldstart.Windows {
	r.asked = append(r.asked, last)
	return r.windows
}

func TestActivity(t *testing.T) {
	const tick = 100 * time.Millisecond
	start := time.Unix(1000, 0)
	cold := &recorder{windows: coldstart.Windows{PreWarm: 30 * time.Second, KeepAlive: time.Minute}}
	a := NewActivity(start)
	look := func(after time.Duration, arrivals uint64, busy bool) (float64, coldstart.Decision) {
		return a.Look(start.Add(after), "f", arrivals, busy, cold, tick)
	}
	if _, d := look(0, 0, false); d.RetireAt != start || d.PreWarmAt != start.Add(30*time.Second) {
		t.Errorf("a new function is decided upon from its beginning on: %v", d)
	}
	if rate, d := look(10*time.Second, 10, false); d != (coldstart.Decision{}) || !a.Arrived() || !(rate > 0.5 && rate < 1.01) {
		t.Errorf("with requests: %v/s, %v, want about 1/s and nothing decided", rate, d)
	}
	if len(cold.observed) != 1 || cold.observed[0] != 10*time.Second {
		t.Errorf("idle times: %v", cold.observed)
	}
	if _, d := look(12*time.Second, 10, true); d != (coldstart.Decision{}) || a.Arrived() || !a.Last().Equal(start.Add(12*time.Second)) {
		t.Errorf("while one is executed: %v, last %v", d, a.Last())
	}
	look(12*time.Second+2*tick, 11, true) // two ticks later
	if len(cold.observed) != 1 {
		t.Errorf("a pause of two looks is an idle time: %v", cold.observed)
	}
	last, before := start.Add(12*time.Second+2*tick), len(cold.asked)
	for i := range 5 {
		_, d := look(20*time.Second+time.Duration(i)*time.Second, 11, false)
		if d.RetireAt != last || d.PreWarmAt != last.Add(30*time.Second) {
			t.Errorf("idle: %v", d)
		}
	}
	if len(cold.asked) != before+1 || !cold.asked[before].Equal(last) {
		t.Errorf("the policy was asked for windows %v, once for each idle time is enough", cold.asked[before:])
	}
	// Another policy, as where a deployment sets a keep-alive of its own.
	if _, d := a.Look(start.Add(26*time.Second), "f", 11, false, coldstart.NewFixed(time.Minute), tick); d.RetireAt != last.Add(time.Minute) {
		t.Errorf("with another policy: %v", d)
	}
	a.Skip(20)
	if look(30*time.Second, 20, false); a.Arrived() {
		t.Error("requests that were to be skipped have arrived")
	}
}

// A system that looks at its load once in a second gets the rate of the last second.
func TestActivityOfASystemWithAPeriod(t *testing.T) {
	s, err := ByName(INFless)
	if err != nil {
		t.Fatal(err)
	}
	start, cold := time.Unix(1000, 0), coldstart.NewFixed(time.Minute)
	a := s.Activity(start)
	for _, c := range []struct {
		after    time.Duration
		arrivals uint64
		rate     float64
	}{
		{0, 0, 0}, {500 * ms, 50, 0}, {time.Second, 100, 100}, {1900 * ms, 100, 100}, {2 * time.Second, 150, 50}, {4 * time.Second, 350, 100},
	} {
		if rate, _ := a.Look(start.Add(c.after), "f", c.arrivals, false, cold, 100*ms); rate != c.rate {
			t.Errorf("after %v: %v/s, want %v", c.after, rate, c.rate)
		}
	}
}

// The rate of requests that come after a time without looks is what it would be with them.
func TestActivityThatWasStill(t *testing.T) {
	const tick = 100 * time.Millisecond
	start := time.Unix(1000, 0)
	cold := &recorder{}
	looked, still := NewActivity(start), NewActivity(start)
	both := func(i int, arrivals uint64) (a, b float64) {
		at := start.Add(time.Duration(i) * tick)
		a, _ = looked.Look(at, "f", arrivals, false, cold, tick)
		b, _ = still.Look(at, "f", arrivals, false, cold, tick)
		return a, b
	}
	both(0, 0)
	for i := 1; i < 10; i++ {
		looked.Look(start.Add(time.Duration(i)*tick), "f", 0, false, cold, tick)
	}
	still.Still(start.Add(9 * tick))
	for i := 10; i < 20; i++ {
		if a, b := both(i, uint64(20*(i-9))); a < 0.9*b || b < 0.9*a {
			t.Errorf("after %d ticks of 200/s the rate is %.1f/s, with looks %.1f/s", i-9, b, a)
		}
	}
}
