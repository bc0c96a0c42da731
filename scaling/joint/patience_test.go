package joint

import (
	"testing"
	"time"
)

const window = 10 * time.Second

func TestLooksThatFindNothingBecomeRare(t *testing.T) {
	var w Patience
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if !w.Due(now, false, window) {
		t.Fatal("the first look is due at once")
	}
	for _, c := range []struct {
		found bool
		next  time.Duration
	}{{false, pause}, {false, 2 * pause}, {false, 4 * pause}, {false, 8 * pause}, {false, window}, {false, window}, {true, pause}, {false, 2 * pause}} {
		w.Tried(now, false, c.found, window)
		if w.Due(now.Add(c.next-1), false, window) || !w.Due(now.Add(c.next), false, window) {
			t.Errorf("found %v: the next is not due after %v", c.found, c.next)
		}
		now = now.Add(c.next)
	}
}

// Instances that are starting are exchanged after a quarter of a second of shortage,
// once in a window. A new shortage begins again.
func TestStartingInstancesAreExchangedOnce(t *testing.T) {
	var w Patience
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	due := func(after time.Duration, want bool) {
		t.Helper()
		now = now.Add(after)
		if w.Short(now); w.Due(now, true, window) != want {
			t.Errorf("due is not %v", want)
		}
	}
	due(0, false)
	due(earlyPause-1, false)
	due(1, true)
	w.Tried(now, true, true, window)
	due(time.Second, false)
	due(window-time.Second-1, false)
	due(1, true)
	w.Enough()
	due(window, false)
	due(earlyPause, true)
	if !w.Due(now, false, window) {
		t.Error("tries with starting instances do not put off those with ready ones")
	}
}
