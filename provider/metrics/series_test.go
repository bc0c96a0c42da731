package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/faas-infer/faas-infer/cluster"
)

// series counts what a scrape of r gets, as Prometheus counts it: a histogram is one series
// for each bucket, and three more.
func series(t *testing.T, r prometheus.Gatherer) (n int) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				n += len(h.GetBucket()) + 2
			}
			n++
		}
	}
	return n
}

// deployed records what the controller does of a function at zero instances.
func deployed(m *Metrics, name string) *FunctionMetrics {
	f := m.Function(name)
	f.SetAllocated(cluster.Resources{})
	f.SetUsed(cluster.Resources{})
	f.SetParked(0)
	f.SetProvisional(false)
	f.SetObjective(100*time.Millisecond, 0.99)
	f.SetLevel(1)
	return f
}

// Prometheus keeps every series in memory. A function costs few until it is used.
func TestSeriesOfAFunction(t *testing.T) {
	r := prometheus.NewRegistry()
	m := New(r)
	f := deployed(m, "idle.ns")
	idle := series(t, r)
	f.Begin()
	f.ObserveRequest(200, time.Millisecond)
	f.ObserveBatch(4, 2*time.Millisecond, nil)
	f.ObserveQueue(time.Millisecond, nil)
	f.ObserveCold(80 * time.Millisecond)
	f.SetInstances("⟨8,1000m,0%⟩", 1)
	f.SetExecRatio("⟨8,1000m,0%⟩", 1)
	busy := series(t, r)
	t.Logf("%d series of an idle function, %d of a busy one", idle, busy)
	if idle > 33 || busy > 93 {
		t.Errorf("%d series of an idle function and %d of a busy one; at most 33 and 93 are wanted", idle, busy)
	}
}

// A histogram that was never used does not come back with a function that is gone.
func TestRemovedFunctionsMakeNoHistograms(t *testing.T) {
	r := prometheus.NewRegistry()
	m := New(r)
	f := m.Function("a.b")
	m.Remove("a.b")
	f.Begin()
	f.ObserveRequest(200, time.Millisecond)
	f.ObserveBatch(1, time.Millisecond, nil)
	if n := series(t, r); n != 0 {
		t.Errorf("%d series of a removed function", n)
	}
}
