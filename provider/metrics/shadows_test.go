package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// What bodies report adds up, whatever one counts again. Reasons that no body may give are left out.
func TestShadowCountsAddUp(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	f := New(r).Function("f.ns")
	counted := func(rows, late float64, relayed uint64) ShadowCounts {
		return ShadowCounts{
			Rows: rows, Fallbacks: map[string]float64{"late": late, "made up": 9},
			Relay: Durations{Count: relayed, Sum: float64(relayed) / 4, Buckets: map[float64]uint64{0.1: relayed / 2, 0.4: relayed}},
		}
	}
	f.SetShadows(true, 2, 100<<20)
	f.AddShadowCounts(counted(10, 1, 4), ShadowCounts{})
	f.AddShadowCounts(counted(16, 1, 8), counted(10, 1, 4))
	f.AddShadowCounts(counted(5, 0, 2), counted(16, 1, 8)) // Another body in its place.
	want := `
# HELP faas_infer_mapped_weights_bytes Weights that the bodies and shadows of a function map; those of a model count once for each node.
# TYPE faas_infer_mapped_weights_bytes gauge
faas_infer_mapped_weights_bytes{function="f.ns"} 1.048576e+08
# HELP faas_infer_relay_duration_seconds Time of a shadow's job that neither its computation nor its wait there explains.
# TYPE faas_infer_relay_duration_seconds histogram
faas_infer_relay_duration_seconds_bucket{function="f.ns",le="0.1"} 5
faas_infer_relay_duration_seconds_bucket{function="f.ns",le="0.4"} 10
faas_infer_relay_duration_seconds_bucket{function="f.ns",le="+Inf"} 10
faas_infer_relay_duration_seconds_sum{function="f.ns"} 2.5
faas_infer_relay_duration_seconds_count{function="f.ns"} 10
# HELP faas_infer_shadow_fallbacks_total Jobs that a shadow did not deliver, so its body computed them, by reason.
# TYPE faas_infer_shadow_fallbacks_total counter
faas_infer_shadow_fallbacks_total{function="f.ns",reason="error"} 0
faas_infer_shadow_fallbacks_total{function="f.ns",reason="late"} 1
faas_infer_shadow_fallbacks_total{function="f.ns",reason="lost"} 0
# HELP faas_infer_shadow_instances Ready shadows, which hold a part of a model and compute rows of their bodies' batches.
# TYPE faas_infer_shadow_instances gauge
faas_infer_shadow_instances{function="f.ns"} 2
# HELP faas_infer_shadow_rows_total Rows that shadows computed for their bodies.
# TYPE faas_infer_shadow_rows_total counter
faas_infer_shadow_rows_total{function="f.ns"} 21
`
	names := []string{"faas_infer_shadow_instances", "faas_infer_mapped_weights_bytes", "faas_infer_shadow_rows_total", "faas_infer_shadow_fallbacks_total", "faas_infer_relay_duration_seconds"}
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	f.SetShadows(false, 0, 0)
	if n, err := testutil.GatherAndCount(r, names[:2]...); err != nil || n != 0 {
		t.Errorf("%d series of a function without shadows, %v", n, err)
	}
}
