package variant

import (
	"testing"
	"time"
)

// followed is an instance that executes ten batches of one a second.
type followed struct {
	Follower
	now   time.Time
	usual *Usual
}

// run executes for d; took is the time of each execution. The profile says 10 ms. It returns
// how long it was until the state changed, 0 if it did not.
func (f *followed) run(d, took time.Duration, calm bool) (changed time.Duration) {
	for past := time.Duration(0); past < d; past += 100 * time.Millisecond {
		f.now = f.now.Add(100 * time.Millisecond)
		f.Executed(Part{CPU: 1000}, 1, took, 10*time.Millisecond)
		before := f.State()
		if f.Look(f.now, f.usual, 10, 100, calm); f.State() != before && changed == 0 {
			changed = past
		}
	}
	return changed
}

func newFollowed(usual *Usual) *followed {
	return &followed{now: time.Unix(0, 0), usual: usual}
}

// An instance becomes Interfered within two seconds, and Active again when it is as fast as
// before. A profile that is wrong from the beginning is no interference.
func TestInterferenceIsSeen(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for _, usually := range []time.Duration{8 * ms, 10 * ms, 40 * ms} {
		f := newFollowed(&Usual{})
		if f.run(20*s, usually, false); f.State() != Active {
			t.Fatalf("%v: %v", usually, f.State())
		}
		if after := f.run(5*s, usually*3/2, false); f.State() != Interfered || after > 2*s {
			t.Errorf("%v: %v after %v", usually, f.State(), after)
		}
		if after := f.run(5*s, usually, false); f.State() != Active || after > 2*s {
			t.Errorf("%v: %v after %v", usually, f.State(), after)
		}
	}
}

// Times that vary as usual are no interference, nor is a single slow execution.
func TestUsualDeviationIsNoInterference(t *testing.T) {
	f := newFollowed(&Usual{})
	for i := range 3000 {
		took := 8 * time.Millisecond
		if i%3 == 0 {
			took = 16 * time.Millisecond
		}
		if i%100 == 50 {
			took = 100 * time.Millisecond
		}
		if f.run(100*time.Millisecond, took, false); f.State() == Interfered {
			t.Fatalf("execution %d: %v", i, f.State())
		}
	}
}

// An instance on another node is compared with the first one, and stays Interfered while that
// one is calm. Otherwise its times become the usual ones after a minute.
func TestSlowForGoodBecomesUsual(t *testing.T) {
	for _, calm := range []bool{true, false} {
		var usual Usual
		newFollowed(&usual).run(20*time.Second, 10*time.Millisecond, false)
		f := newFollowed(&usual)
		if after := f.run(50*time.Second, 20*time.Millisecond, calm); f.State() != Interfered || after > 2*time.Second {
			t.Errorf("calm %v: %v after %v", calm, f.State(), after)
		}
		f.run(time.Minute, 20*time.Millisecond, calm)
		if interfered := f.State() == Interfered; interfered != calm {
			t.Errorf("calm %v: %v", calm, f.State())
		}
		if got := usual.Ratio(Part{CPU: 1000}, 1); !calm && (got < 1.9 || got > 2.1) {
			t.Errorf("the usual ratio is %v", got)
		}
	}
}

// Larger batches and other shares have usual times of their own.
func TestUsualByShareAndBatch(t *testing.T) {
	f := newFollowed(&Usual{})
	f.run(20*time.Second, 10*time.Millisecond, false)
	for range 300 {
		f.now = f.now.Add(100 * time.Millisecond)
		f.Executed(Part{CPU: 1000}, 8, 90*time.Millisecond, 30*time.Millisecond)
		f.Executed(Part{CPU: 500}, 1, 90*time.Millisecond, 30*time.Millisecond)
		if f.Look(f.now, f.usual, 10, 100, false); f.State() != Active {
			t.Fatal(f.State())
		}
	}
	if a, b, c := f.usual.Ratio(Part{CPU: 1000}, 1), f.usual.Ratio(Part{CPU: 1000}, 8), f.usual.Ratio(Part{CPU: 500}, 1); a > 1.01 || b < 2.9 || c < 2.9 || f.usual.Ratio(Part{CPU: 1000}, 2) != 1 {
		t.Errorf("%v, %v, %v", a, b, c)
	}
}
