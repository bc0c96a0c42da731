package precision

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
)

// made is a trial of ten requests a second over 130 s. Its requests due in the second from slow
// are late, those in the second from refused refused.
func made(way string, slow, refused time.Duration) trial {
	t := trial{way: way, slo: 100 * time.Millisecond, before: map[string]int{quantised: 1}, during: map[string]int{original: 1}, after: map[string]int{quantised: 1}}
	for at := time.Duration(0); at < 130*time.Second; at += 100 * time.Millisecond {
		r := load.Observed{At: at, Latency: 50 * time.Millisecond, Sent: true, Good: true, Status: 200}
		if at >= slow && at < slow+time.Second {
			r.Latency = time.Second
		}
		if at >= refused && at < refused+time.Second {
			r.Good, r.Status = false, 503
		}
		t.requests = append(t.requests, r)
	}
	return t
}

// A refused or lost request counts as late, too.
func TestWithin(t *testing.T) {
	one := made(byFloor, up, up+time.Second)
	one.requests[len(one.requests)-1].Good, one.requests[len(one.requests)-1].Status = false, 502
	one.requests[len(one.requests)-2].Good, one.requests[len(one.requests)-2].Status = false, 0
	if got, want := one.within(down+around, time.Hour), (tally{800, 2, 0, 2}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := one.within(up-around, up+around), (tally{200, 20, 10, 0}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := one.within(down-around, down+around), (tally{requests: 200}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if p := (tally{requests: 200, late: 20}).percent(); p != 10 {
		t.Errorf("%v %%, want 10", p)
	}
	if p := (tally{}).percent(); p != 0 {
		t.Errorf("%v %% of no requests", p)
	}
}

func TestAddTrials(t *testing.T) {
	far := time.Hour
	idle := made(byHeader, far, far)
	idle.before = map[string]int{original: 1, quantised: 1} // fp32 served already.
	all := []trial{made(byFloor, up, far), made(byHeader, down, up), idle, made(byFloor, far, 120*time.Second)}
	r := report.New("x", time.Time{})
	addTrials(r, all)
	got := map[string]float64{}
	for _, x := range r.Results {
		got[x.Name] = x.Value
	}
	for name, want := range map[string]float64{
		"switch.floor.up.late_pct": 2.5, "switch.floor.down.late_pct": 0, "switch.header.up.late_pct": 2.5, "switch.header.down.late_pct": 2.5,
		"switch.late_pct": 100 * 30. / 1600, "switch.refused": 10, "switch.lost": 0, "switch.later.late_pct": 100 * 10. / 3200, "switch.switched": 3,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}
