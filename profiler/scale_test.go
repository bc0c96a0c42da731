package profiler

import (
	"math"
	"testing"
)

// A profile is converted to a machine whose yardstick takes longer; times on a GPU stay.
func TestScaled(t *testing.T) {
	p := &Profile{Model: "m", Yardstick: 40, Measurements: []Measurement{
		{Batch: 1, Threads: 1, Median: 1000, P95: 1100, CPU: 900, Runs: 3},
		{Batch: 1, Threads: 1, GPU: 50, Median: 100, P95: 100, CPU: 10, Runs: 3},
	}}
	by := Paces(40, 60)
	if math.Abs(by/1.5-1) > 0.025 {
		t.Fatalf("factor %v", by)
	}
	s := p.Scaled(by, 0.2)
	if m := s.Measurements[0]; m.Median != 1000*by || m.P95 != 1100*by || m.CPU != 900*by || math.Abs(m.Margin-0.3) > 1e-9 {
		t.Errorf("%+v", m)
	}
	if s.Measurements[1] != p.Measurements[1] || p.Measurements[0].Median != 1000 || s.Yardstick != 40*by {
		t.Errorf("%+v of %+v", s, p)
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	// Readings that differ a little give the same times: corrections hold for exact ones.
	if Paces(40, 60.5) != by || Paces(0, 60) != 1 || Paces(40, 0) != 1 || Paces(1, 1e9) > 8.2 || p.Scaled(1, 0) != p {
		t.Error("not the same factor")
	}
}
