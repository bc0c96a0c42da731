package registration

import (
	"math"
	"testing"
)

func TestRight(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		scores     []float64
		label      int
		top1, top5 bool
	}{
		{[]float64{0, 3, 1}, 1, true, true},
		{[]float64{0, 3, 1}, 2, false, true},
		{[]float64{2, 2}, 0, true, true},
		{[]float64{2, 2}, 1, false, true},
		{[]float64{6, 5, 4, 3, 2, 1}, 4, false, true},
		{[]float64{6, 5, 4, 3, 2, 1}, 5, false, false},
		{[]float64{nan, 1}, 1, false, false},
		{[]float64{nan, 1}, 0, false, false},
		{[]float64{1}, 1, false, false},
		{[]float64{1}, -1, false, false},
		{[]float64{math.Inf(-1), math.Inf(1)}, 1, true, true},
	} {
		if got1, got5 := Top1.Right(c.scores, c.label), Top5.Right(c.scores, c.label); got1 != c.top1 || got5 != c.top5 {
			t.Errorf("%+v: %v, %v", c, got1, got5)
		}
	}
}

// The bounds are those of Wilson (1927): for 45 of 50 the formula gives 0.7864 and 0.9565.
func TestShareOf(t *testing.T) {
	near := func(a, b float64) bool { return math.Abs(a-b) < 0.005 }
	for _, c := range []struct {
		hits, rows       int
		value, low, high float64
	}{
		{45, 50, 90, 78.640, 95.652},
		{0, 30, 0, 0, 11.351},
		{30, 30, 100, 88.649, 100},
		{380, 500, 76, 72.067, 79.537},
	} {
		s := ShareOf(c.hits, c.rows)
		if !near(s.Value, c.value) || !near(s.Low, c.low) || !near(s.High, c.high) || s.Rows != c.rows {
			t.Errorf("%d of %d: %+v, want %+v", c.hits, c.rows, s, c)
		}
	}
	for rows := 1; rows < 200; rows++ {
		for hits := range rows + 1 {
			if s := ShareOf(hits, rows); !(0 <= s.Low && s.Low <= s.Value && s.Value <= s.High && s.High <= 100) {
				t.Fatalf("%d of %d: %+v", hits, rows, s)
			}
		}
	}
}

func TestParseMetric(t *testing.T) {
	if m, err := ParseMetric(""); m != Top1 || err != nil {
		t.Error(m, err)
	}
	if m, err := ParseMetric("top-5"); m != Top5 || err != nil {
		t.Error(m, err)
	}
	if _, err := ParseMetric("f1"); err == nil || err.Error() != `metric is "f1": it must be top-1 or top-5` {
		t.Error(err)
	}
}
