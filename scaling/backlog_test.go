package scaling

import (
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// A queue of requests that may wait for a minute counts with what must be executed in a minute.
func TestBacklog(t *testing.T) {
	var b Backlog
	now := time.Unix(1_700_000_000, 0)
	begun := uint64(0)
	read := func(requests, done, waiting int) float64 {
		begun += uint64(done)
		return b.Load(now, Queued{At: now, Requests: requests, Begun: begun, Waiting: waiting, Within: time.Minute})
	}
	is := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 0.01*(want+1) {
			t.Errorf("%s: %.2f/s, want %.2f/s", what, got, want)
		}
	}
	is("nothing", read(0, 0, 0), 0)
	// 256 are in hand before the queue is read again: at least 256/60 s.
	now = now.Add(time.Second)
	is("the first in hand", b.Load(now, Queued{At: now.Add(-time.Second), Waiting: 256, Begun: 256, Within: time.Minute}), 4.27)
	now = now.Add(9 * time.Second)
	is("10,000 came at once", read(10000, 256, 256), 10000/60.0)
	for left := 9000; left > 1700; left -= 1000 { // 100/s, however many instances that takes.
		now = now.Add(10 * time.Second)
		is("the queue is emptied at any speed", read(left, 1000, 256), 10000/60.0)
	}
	for range 60 {
		now = now.Add(10 * time.Second)
		read(0, 0, 0)
	}
	is("it is empty for ten minutes", read(0, 0, 0), 0)
	// 100/s come and are executed at once. The rate is right within 5 % after three minutes.
	for range 18 {
		now = now.Add(10 * time.Second)
		read(5, 1000, 0)
	}
	is("100/s", read(5, 0, 0), 100*(1-math.Exp(-3)))
	// The instances are three times as fast as needed, and the same 100/s come: no more load.
	for range 60 {
		now = now.Add(10 * time.Second)
		read(5, 1000, 0)
	}
	is("100/s for long", read(5, 0, 0), 100)
	// Nobody can read the queue.
	now = now.Add(2 * time.Minute)
	is("no reading for two minutes", b.Load(now, Queued{Within: time.Minute}), 0)
}

// Requests that may wait are no burst: 256 of them with an objective of 50 ms would be 5,120/s.
func TestPatientRequestsAreNoBurst(t *testing.T) {
	for _, queue := range []capacity.Queue{capacity.LateBound, capacity.PerInstance} {
		demand := func(patient int) float64 {
			f := Function{Name: "f", Revision: 1, SLO: 50 * ms, Queue: queue, Rate: 10, Waiting: 256, Patient: patient, Configs: []capacity.Candidate{config(1, 1000, 0, 10*ms)}}
			return New(Settings{}).observe(time.Unix(1_700_000_000, 0), []Function{f})[0].demand
		}
		if all, none := demand(256), demand(0); all != 10 || none <= all {
			t.Errorf("%v: the demand is %v/s if all may wait, and %v/s if none may", queue, all, none)
		}
	}
}
