package interference

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
)

// made is the outcome of ten requests a second over 60 s, disturbed from 20 s until 40 s. late
// says which were answered late.
func made(late func(at time.Duration) bool) *outcome {
	o := &outcome{slo: 100 * time.Millisecond, from: 20 * time.Second, lasts: 20 * time.Second}
	for at := time.Duration(0); at < time.Minute; at += 100 * time.Millisecond {
		r := load.Observed{At: at, Latency: 50 * time.Millisecond, Sent: true, Good: true, Status: 200}
		if late(at) {
			r.Latency = time.Second
		}
		o.requests = append(o.requests, r)
	}
	return o
}

func TestRecovered(t *testing.T) {
	for name, c := range map[string]struct {
		late func(at time.Duration) bool
		want time.Duration
		ok   bool
	}{
		"never late": {func(time.Duration) bool { return false }, 0, true},
		"until 3 s":  {func(at time.Duration) bool { return at >= 20*time.Second && at < 23*time.Second }, 3 * time.Second, true},
		"late again": {func(at time.Duration) bool {
			return at >= 20*time.Second && at < 30*time.Second && (at < 22*time.Second || at >= 26*time.Second)
		}, 10 * time.Second, true},
		"a pause of a second is no recovery": {func(at time.Duration) bool {
			return at >= 20*time.Second && at < 30*time.Second && (at < 22*time.Second || at >= 23*time.Second)
		}, 10 * time.Second, true},
		"for ever": {func(at time.Duration) bool { return at >= 20*time.Second }, 0, false},
		// A tenth of the requests was late before, too.
		"as before": {func(at time.Duration) bool { return at%time.Second == 0 || at >= 20*time.Second && at < 24*time.Second }, 4 * time.Second, true},
	} {
		if got, ok := made(c.late).recovered(); got != c.want || ok != c.ok {
			t.Errorf("%s: %v, %v; want %v, %v", name, got, ok, c.want, c.ok)
		}
	}
}

func TestLost(t *testing.T) {
	o := made(func(time.Duration) bool { return false })
	o.requests[3].Sent, o.requests[3].Good = false, false
	o.requests[4].Status, o.requests[4].Good = 0, false
	o.requests[5].Status, o.requests[5].Good = 503, false
	if n := o.lost(); n != 2 {
		t.Errorf("%d lost, want 2: a refusal is an answer", n)
	}
	if got := o.within(0, time.Second); got != 0.7 {
		t.Errorf("%v within the objective, want 0.7", got)
	}
}
