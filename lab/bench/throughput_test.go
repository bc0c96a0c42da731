package bench

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/profiler"
)

// The search finds the highest rate answered in time. If no rate is, it ends soon with an
// error.
func TestBisecting(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)
	target := load.Target{Name: "x", URL: s.URL, Body: load.Cycle([]byte("x")), SLO: 10 * time.Second, Arrivals: load.Poisson}
	b := Throughput{SLO: target.SLO, Trial: 20 * time.Millisecond}
	met, result, err := b.met(t.Context(), target, 100, 1)
	if err != nil || !met || result.WithinSLO != 1 {
		t.Fatalf("%v, %+v, %v", met, result, err)
	}
	target.SLO = time.Nanosecond
	if found, err := b.bisect(t.Context(), rig.Options{Log: io.Discard}, target, "x", 100); err == nil || !strings.Contains(err.Error(), "not even") {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestMediansOfOneThread(t *testing.T) {
	p := &profiler.Profile{Measurements: []profiler.Measurement{{Batch: 1, Threads: 2, Median: 5}, {Batch: 1, Threads: 1, Median: 7}, {Batch: 8, Threads: 1, Median: 9}}}
	for batch, want := range map[int]float64{1: 7, 8: 9, 4: 0} {
		if got := singleThreadMedian(p, batch); got != want {
			t.Errorf("a batch of %d takes %v µs, want %v", batch, got, want)
		}
	}
}
