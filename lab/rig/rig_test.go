package rig

import (
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/faas-infer/faas-infer/provider/metrics"
)

func TestMedian(t *testing.T) {
	for want, xs := range map[float64][]float64{2: {3, 1, 2}, 2.5: {4, 1, 2, 3}, 7: {7}} {
		if got := Median(xs); got != want {
			t.Errorf("median of %v is %v, want %v", xs, got, want)
		}
	}
}

func TestProcessFigures(t *testing.T) {
	// It is told in steps of 10 ms, which take longer where others use the cores.
	var used time.Duration
	var err error
	for began := time.Now(); used <= 0 && err == nil && time.Since(began) < time.Minute; {
		used, err = ProcessorTime(os.Getpid())
	}
	if err != nil || used <= 0 || used > time.Hour {
		t.Errorf("this process has used %v: %v", used, err)
	}
	if resident, err := StatusField(os.Getpid(), "VmRSS"); err != nil || resident < 1024 {
		t.Errorf("this process has %v kB: %v", resident, err)
	}
	if _, err := StatusField(os.Getpid(), "NoSuchField"); err == nil {
		t.Error("a field that is not there is found")
	}
}

// The benchmarks read the series that the provider has.
func TestFunctionMetric(t *testing.T) {
	registry := prometheus.NewRegistry()
	all := metrics.New(registry)
	s := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer s.Close()
	d := &Deployed{URL: s.URL}
	for _, provisional := range []bool{true, false} {
		all.Function("whole.openfaas-fn").SetProvisional(provisional)
		all.Function("other.openfaas-fn").SetProvisional(!provisional)
		got, err := d.FunctionMetric(t.Context(), "provisional_profile", "whole")
		if err != nil || (got == 1) != provisional {
			t.Errorf("%v, %v, want %v", got, err, provisional)
		}
	}
}
