package metrics

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Each request counts in one way, and what the client has to change, or broke off, in none.
func TestReading(t *testing.T) {
	m := New(prometheus.NewRegistry())
	f := m.Function("f.n")
	var r Reading
	r.Read(f, true)
	if len(r.Latency) != len(LatencyBounds())+1 || len(r.Batches) != len(BatchBounds())+1 || !r.Quiet(f) {
		t.Errorf("before the first request: %+v", r)
	}
	for _, x := range []struct {
		code int
		late bool
		n    int
	}{{200, false, 10}, {200, true, 3}, {429, false, 2}, {503, false, 4}, {500, false, 1}, {502, false, 1}, {400, false, 5}, {499, false, 6}, {499, true, 1}} {
		for range x.n {
			f.Begin()
			f.ObserveRequest(x.code, 3*time.Millisecond)
			f.ObserveObjective(x.code, x.late)
		}
	}
	f.Begin()
	f.ObserveBatch(3, time.Millisecond, nil)
	f.ObserveBatch(1000, time.Millisecond, nil)
	if r.Quiet(f) {
		t.Error("it has taken requests")
	}
	r.Read(f, true)
	if r.Started != 34 || r.Answered != 33 || r.InTime != 10 || r.Late != 4 || r.Refused != 6 || r.Failed != 2 || r.Wrong != 5 || r.WrongCode != 400 {
		t.Errorf("with an objective: %+v", r)
	}
	if r.Quiet(f) {
		t.Error("a request is in flight")
	}
	if want := []uint64{0, 0, 33}; !slices.Equal(r.Latency[:3], want) || r.Batches[2] != 1 || r.Batches[len(r.Batches)-1] != 1 {
		t.Errorf("latencies %v, batches %v", r.Latency, r.Batches)
	}
	r.Read(f, false)
	if r.InTime != 13 || r.Late != 0 || r.Refused != 6 || r.Failed != 2 {
		t.Errorf("without an objective: %+v", r)
	}
	if n := testing.AllocsPerRun(100, func() { r.Quiet(f) }); n > 0 {
		t.Errorf("a look at a quiet function allocates %g times", n)
	}
}
