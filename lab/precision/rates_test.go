package precision

import (
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/profiler"
)

// The engine's rate is that of the best batch that leaves time to wait, on one thread.
func TestHighest(t *testing.T) {
	of := []profiler.Measurement{{Batch: 1, Threads: 1, Median: 10e3}, {Batch: 2, Threads: 1, Median: 16e3}, {Batch: 2, Threads: 2, Median: 9e3}, {Batch: 4, Threads: 1, Median: 30e3}}
	for objective, want := range map[time.Duration]float64{50 * time.Millisecond: 125, 60 * time.Millisecond: 4 / 0.03, 20 * time.Millisecond: 100, 19 * time.Millisecond: 0} {
		if got := highest(of, objective); got != want {
			t.Errorf("%v: %v, want %v", objective, got, want)
		}
	}
}

// The ratios are of the medians.
func TestAdd(t *testing.T) {
	r := report.New("x", time.Time{})
	engine := rates{original: {10, 10, 1000}, quantised: {40, 1, 40}}
	ours := rates{original: {9, 10, 11}, quantised: {29, 30, 31}}
	add(r, "mobilenet", "static", engine, ours)
	got := map[string]float64{}
	for _, x := range r.Results {
		got[x.Name] = x.Value
	}
	for name, want := range map[string]float64{
		"rps.mobilenet.fp32": 10, "rps.mobilenet.int8": 30, "rps_ratio.mobilenet.int8_over_fp32": 3, "engine_ratio.mobilenet": 4, "share_of_engine.mobilenet": 0.75,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

func TestInTurn(t *testing.T) {
	var order []string
	for round := range 3 {
		order = append(order, inTurn(round)...)
	}
	if want := []string{"fp32", "int8", "int8", "fp32", "fp32", "int8"}; !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
}
