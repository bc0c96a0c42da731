package e2e

import (
	"net/http"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// metrics reads /metrics.
func (d *daemon) metrics(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	a := do(t, d.own, http.MethodGet, d.url+"/metrics", nil)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(a.body))
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("metrics: %d, %v", a.status, err)
	}
	return families
}

// gauge returns the value of a gauge without labels.
func (d *daemon) gauge(t *testing.T, name string) float64 {
	t.Helper()
	f := d.metrics(t)[name]
	if len(f.GetMetric()) != 1 {
		t.Fatalf("%d measures %s", len(f.GetMetric()), name)
	}
	m := f.GetMetric()[0]
	return m.GetGauge().GetValue() + m.GetCounter().GetValue()
}

// batches returns the number of a function's executed batches, the number of their
// requests, and whether any had more than one.
func (d *daemon) batches(t *testing.T, function string) (batches, requests uint64, larger bool) {
	t.Helper()
	for _, m := range d.metrics(t)["faas_infer_batch_size"].GetMetric() {
		if !labelled(m, "function", function+".openfaas-fn") {
			continue
		}
		h := m.GetHistogram()
		return h.GetSampleCount(), uint64(h.GetSampleSum()), h.GetBucket()[0].GetCumulativeCount() < h.GetSampleCount()
	}
	return 0, 0, false
}

func labelled(m *dto.Metric, name, value string) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue() == value
		}
	}
	return false
}
