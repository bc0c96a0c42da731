package load

import (
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
)

func TestQuantilesAreNearestRank(t *testing.T) {
	var ds []time.Duration
	for i := 100; i >= 1; i-- {
		ds = append(ds, time.Duration(i))
	}
	if got, want := quantiles(ds), (Quantiles{Mean: 50, P50: 50, P95: 95, P99: 99, Max: 100}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := quantiles([]time.Duration{7}), (Quantiles{7, 7, 7, 7, 7}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := quantiles(nil); got != (Quantiles{}) {
		t.Errorf("got %+v for no samples", got)
	}
}

func TestAddTo(t *testing.T) {
	target := Target{Name: "mnist", SLO: 5 * time.Millisecond}
	samples := []sample{
		{outcome: good, status: 200, latency: 4 * time.Millisecond, lag: 2 * time.Millisecond},
		{outcome: good, status: 200, latency: 6 * time.Millisecond},
		{outcome: refused, status: 503, latency: time.Millisecond},
		{outcome: unsent},
	}
	r := summarise(&target, samples, 4, 2*time.Second)
	rep := report.New("load", time.Unix(0, 0))
	r.AddTo(rep, "mnist.")
	got := map[string]float64{}
	for _, x := range rep.Results {
		got[x.Name] = x.Value
	}
	for name, want := range map[string]float64{
		"mnist.offered.rps":      4,
		"mnist.achieved.rps":     1,
		"mnist.latency.p50_ms":   4,
		"mnist.latency.p99_ms":   6,
		"mnist.within_slo.share": 0.25,
		"mnist.requests.sent":    3,
		"mnist.requests.dropped": 1,
		"mnist.status.503":       1,
		"mnist.send_lag.late":    1,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is %v (present: %v), want %v", name, value, ok, want)
		}
	}
	var table strings.Builder
	if err := rep.Table(&table); err != nil || !strings.Contains(table.String(), "do not trust") {
		t.Errorf("a lagging generator is not mentioned (%v):\n%s", err, table.String())
	}
}
