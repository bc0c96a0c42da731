package keeper

import (
	"strings"
	"testing"
	"time"
)

var epoch = time.Unix(1_000_000, 0).UTC()

// The pause doubles with each instance that exits early, up to half a minute. After three,
// requests no longer wait.
func TestPausesGrow(t *testing.T) {
	var f Failures
	now, last := epoch, time.Duration(0)
	for n := 1; n <= 12; n++ {
		f.Died(now, time.Time{}, false, "killed")
		pause := f.NotBefore.Sub(now)
		if pause < last || n < 8 && pause != 100*time.Millisecond<<n || pause > 30*time.Second {
			t.Errorf("after %d failures: %v, after one less %v", n, pause, last)
		}
		if f.Hopeless(now) != (n >= 3) || !f.Pausing(now) || f.Pausing(f.NotBefore) {
			t.Errorf("after %d failures: %+v", n, f)
		}
		now, last = f.NotBefore, pause
	}
	if f.Why != "an instance exited before it was ready: killed" {
		t.Error(f.Why)
	}
}

// A full disk is no fault of the function: starts are tried again, with growing pauses, and
// requests wait for them. Other failures in between count.
func TestFullDisk(t *testing.T) {
	var f Failures
	now := epoch
	for n := 1; n <= 12; n++ {
		f.Died(now, time.Time{}, false, "start instance f-1: state directory: mkdir /var/lib/x: no space left on device")
		if f.Hopeless(now) || !f.Pausing(now) || n < 8 && f.NotBefore.Sub(now) != 100*time.Millisecond<<n {
			t.Errorf("after %d failures: %+v", n, f)
		}
		now = f.NotBefore
	}
	if !strings.HasPrefix(f.Why, "no space left on") || !strings.Contains(f.Why, "/var/lib/x") {
		t.Error(f.Why)
	}
	for n, why := range []string{"killed", "disk quota exceeded", "exited with code 1: OSError: [Errno 28] No space left on device", "killed", "killed"} {
		f.Died(now, time.Time{}, false, why)
		if f.Hopeless(now) != (n == 4) {
			t.Errorf("after %q: %+v", why, f)
		}
	}
	now = f.NotBefore
	if f.Serves(now.Add(Settled), now); f.Count != 0 || f.full != 0 {
		t.Errorf("after an instance serves: %+v", f)
	}
}

// An instance that has answered something, or was ready for a while, is replaced at once: the function
// works, and earlier failures are over.
func TestMishaps(t *testing.T) {
	for _, c := range []struct {
		ready  time.Duration
		served bool
		count  int
	}{{-time.Second, true, 0}, {-Settled, false, 0}, {-time.Second, false, 2}} {
		f := Failures{Count: 1, Why: "killed"}
		f.Died(epoch, epoch.Add(c.ready), c.served, "")
		if f.Count != c.count || (f.Why == "") != (c.count == 0) || f.Pausing(epoch) != (c.count > 0) {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}

// Failures are forgotten when an instance that came after them has been ready for a while,
// or when they are long past.
func TestForgotten(t *testing.T) {
	for _, c := range []struct {
		ready, after time.Duration
		left         int
	}{{time.Second, time.Second + Settled, 0}, {time.Second, Settled, 1}, {-time.Hour, Settled, 1}, {-time.Hour, forgetAfter, 0}, {0, -1, 1}} {
		f := Failures{Count: 1, Why: "it died", NotBefore: epoch}
		f.Serves(epoch.Add(c.after), epoch.Add(c.ready))
		if f.Count != c.left || (f.Why == "") != (c.left == 0) {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}
