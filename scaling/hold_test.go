package scaling

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// The example of the documentation of hold.
func TestHoldFollowsCredit(t *testing.T) {
	e := New(Settings{Options: capacity.Production(), Stabilisation: time.Minute, Burst: 15 * time.Second})
	for _, c := range []struct {
		loading time.Duration
		credit  float64
		slo     time.Duration
		want    time.Duration
	}{
		{200 * time.Millisecond, 0, time.Second, time.Minute},
		{200 * time.Millisecond, 0.5, time.Second, 11 * time.Second},
		{200 * time.Millisecond, 1, time.Second, 2 * time.Second},
		{6 * time.Second, 0.5, time.Second, 42 * time.Second},
		{6 * time.Second, 1, time.Second, 30 * time.Second},
		{time.Minute, 1, time.Second, time.Minute},
		{0, 1, time.Second, time.Minute},
		{200 * time.Millisecond, 1, 0, time.Minute},
	} {
		v := view{Function: Function{SLO: c.slo, Credit: c.credit}, engine: e, memory: &memory{}}
		v.memory.loading = c.loading
		if got := hold(&v); got.Round(time.Second) != c.want {
			t.Errorf("loads in %v, credit %v, objective %v: held for %v, want %v", c.loading, c.credit, c.slo, got, c.want)
		}
	}
}

// A load falls. With a full credit the demand that exchanges are planned for stays that of the window, and the one
// that releases follow falls after the hold.
func TestExchangesSeeTheWholeWindow(t *testing.T) {
	e := New(Settings{Options: capacity.Production(), Stabilisation: time.Minute, Burst: 15 * time.Second})
	v := view{Function: Function{SLO: time.Second, Credit: 1}, engine: e, memory: &memory{}, joint: true}
	v.memory.loading = 200 * time.Millisecond
	for at := time.Duration(0); at <= 70*time.Second; at += 100 * time.Millisecond {
		if v.steady = 20; at <= 5*time.Second {
			v.steady = 100
		}
		v.demand = v.steady
		remember(&v, epoch.Add(at))
		peak, top := 100.0, 100.0
		if at > 7*time.Second {
			peak = 20
		}
		if at >= 65*time.Second {
			top = 20
		}
		if v.peak != peak || v.top != top {
			t.Fatalf("at %v the peak is %v and the top %v, want %v and %v", at, v.peak, v.top, peak, top)
		}
	}
}
