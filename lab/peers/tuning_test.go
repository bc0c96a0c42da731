package peers

import (
	"slices"
	"testing"
	"time"
)

// tune runs a search on a server with these rates, and returns the settings in their order.
func tune(t *Tuning, rate func(Setting) float64) (tried []Setting) {
	for {
		x, done := t.Next()
		if done {
			return tried
		}
		tried = append(tried, x)
		t.Saw(x, rate(x))
	}
}

// The search climbs to the best of a server whose settings do not depend on each other, measures
// none twice, and far fewer than there are.
func TestTuningFinds(t *testing.T) {
	slo := 50 * time.Millisecond
	for _, want := range []Setting{{MaxBatch: 16, Delay: slo / 4, Workers: 4, Preferred: 16}, {MaxBatch: 64, Workers: 1}, {MaxBatch: 8, Delay: slo / shortDelay, Workers: 2, Preferred: 4}} {
		s := NewTuning(slo, 1000)
		tried := tune(s, func(x Setting) float64 {
			rate := 100.0
			for _, same := range []bool{x.MaxBatch == want.MaxBatch, x.Delay == want.Delay, x.Workers == want.Workers, want.Preferred*x.MaxBatch == x.Preferred*want.MaxBatch} {
				if same {
					rate *= 1.3
				}
			}
			return rate
		})
		if got := s.Best; got.MaxBatch != want.MaxBatch || got.Delay != want.Delay || got.Workers != want.Workers || got.Preferred != want.Preferred {
			t.Errorf("%+v, want %+v", got, want)
		}
		if len(tried) > 24 {
			t.Errorf("%d settings", len(tried))
		}
		names := map[string]bool{}
		for _, x := range tried {
			if names[x.Name] || x.Preferred > x.MaxBatch || x.Delay > slo {
				t.Errorf("%+v", x)
			}
			names[x.Name] = true
		}
	}
}

// A search ends after as many settings as it may measure, and where nothing answers.
func TestTuningEnds(t *testing.T) {
	s := NewTuning(50*time.Millisecond, 5)
	n := 0.0
	if tried := tune(s, func(Setting) float64 { n++; return n }); len(tried) != 5 || s.Rate != 5 || !slices.Contains(tried, s.Best) {
		t.Errorf("%v, %+v", tried, s)
	}
	s = NewTuning(50*time.Millisecond, 1000)
	if tried := tune(s, func(Setting) float64 { return 0 }); len(tried) > 11 || s.Rate != 0 {
		t.Errorf("%d settings where nothing answers", len(tried))
	}
}
