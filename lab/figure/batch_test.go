package figure

import (
	"strings"
	"testing"
)

const tunedDay = `
kind: batch
cluster: {machines: [{name: a, count: 1, cpu: 64, memory: 64GiB}]}
duration: 15m
functions:
  - {name: a, model: resnet-v2, profile: lambda, start: 0s, memory: 1GiB, gpu_memory: 1GiB, slo: 8s, percentile: 95, max_batch: 3,
     arrivals: {mmpp: [{rate: 2, for: 3m}, {rate: 20, for: 1m}]}}
`

// Every hour meets the objective and costs less than one call per request.
func TestTuning(t *testing.T) {
	s := parsed(t, "tuned", tunedDay)
	out, err := Run(t.Context(), s, Options{Systems: systemsOf(t, "batch"), Drawings: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := value(t, out, "worst_hour_over_slo.a.batch"); !(got > 0.3 && got <= 1) {
		t.Errorf("the worst hour's percentile is %v of the SLO", got)
	}
	if got := value(t, out, "worst_hour_over_slo.a.batch-published"); !(got > 0.3 && got < 3) {
		t.Errorf("as published the worst hour's percentile is %v of the SLO", got)
	}
	for _, name := range []string{"cost_ratio.a.batch_over_largest", "cost_ratio.a.batch_over_cheapest", "cost_ratio.a.batch-published_over_largest"} {
		if got := value(t, out, name); !(got > 0.2 && got < 1) {
			t.Errorf("%s is %v", name, got)
		}
	}
	// One request takes 1.527 s with 3008 MB, the largest size: 1.527·3008/1024·K1 + K2.
	if got := value(t, out, "cost_per_request.a.one_to_one_largest"); !(got > 7.48e-5 && got < 7.51e-5) {
		t.Errorf("a request alone costs %v $", got)
	}
	if got := printed(t, out); !strings.Contains(got, "BATCH's buffer") || !strings.Contains(got, "hour by hour") {
		t.Errorf("got %s", got)
	}
	if len(out.Drawings) != 1 || len(out.Drawings[0].Panels) != 6 {
		t.Errorf("%d drawings", len(out.Drawings))
	}
}
