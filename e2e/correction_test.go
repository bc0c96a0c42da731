package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/command/load"
)

// ratios returns the ratios of measured to predicted times, by config.
func (d *daemon) ratios(t *testing.T, function string) map[string]float64 {
	t.Helper()
	ratios := map[string]float64{}
	for _, m := range d.metrics(t)["faas_infer_exec_over_predicted_ratio"].GetMetric() {
		if !labelled(m, "function", function+".openfaas-fn") {
			continue
		}
		for _, l := range m.GetLabel() {
			if l.GetName() == "config" {
				ratios[l.GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	return ratios
}

// After some hundred requests the provider has corrected the predicted times of a model.
// The next provider has the same corrections.
func TestTimesAreCorrected(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.slow(t)
	d := p.provider(t, suite.binary, "--measure")
	f := scaled(function("slow", "slow:latest", "2s", "infer.max-batch", "8", "slo.percentile", "90"), "1", "1")
	// The metric is of the share that serves: it stays the same on a busy machine too.
	f.Requests, f.Limits = &types.FunctionResources{CPU: "750m"}, &types.FunctionResources{CPU: "750m"}
	d.deploy(t, f)
	d.awaitReady(t, "slow", 1)
	if got := d.ratios(t, "slow"); len(got) > 0 {
		t.Errorf("before the first request: %v", got)
	}
	requests := 0
	invoke := func() {
		result, err := load.RunClosed(t.Context(), identityTarget(d.function("slow"), 0), 4, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		wantAnswered(t, *result, http.StatusServiceUnavailable)
		requests += result.Requests
	}
	// The evidence for the first ratio may be just enough, and it fades with time. And it is
	// dropped when the time outside the engine turns out to be another. A ratio that four
	// seconds of requests do not change survives the restart.
	held := 0
	d.await(t, patience, "a ratio that stays", func() bool {
		invoke()
		if held++; len(d.ratios(t, "slow")) == 0 {
			held = 0
		}
		return held > 4
	})
	for config, ratio := range d.ratios(t, "slow") {
		t.Logf("%d requests; on %s the ratio is %.2f", requests, config, ratio)
		if !strings.HasPrefix(config, "⟨") || ratio < 0.1 || ratio > 20 {
			t.Errorf("%s takes %.2f times as long as was measured", config, ratio)
		}
	}
	d.stop(t)
	again := p.provider(t, suite.binary, "--measure")
	again.awaitReady(t, "slow", 1)
	again.await(t, patience, "the ratio of before", func() bool { return len(again.ratios(t, "slow")) > 0 })
	again.stop(t)
}
