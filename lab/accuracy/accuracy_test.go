package accuracy

import (
	"math"
	"strings"
	"testing"
)

func TestSummarise(t *testing.T) {
	s, err := Summarise([]Row{
		{"resnet-50", 1, 1000, 110, 100},
		{"dssm", 1, 1000, 95, 100},
		{"resnet-50", 2, 1000, 160, 200},
		{"resnet-50", 4, 500, 400, 400},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []Mean{{"resnet-50", 3, 10, -10.0 / 3}, {"dssm", 1, 5, -5}}
	for i, m := range s.Models {
		same(t, m, want[i])
	}
	same(t, s.All, Mean{"all", 4, 35.0 / 4, -15.0 / 4})
	if s.Worst.Batch != 2 || s.Worst.ErrorPercent() != 20 {
		t.Errorf("worst %+v", s.Worst)
	}
}

func same(t *testing.T, got, want Mean) {
	t.Helper()
	if got.Model != want.Model || got.Rows != want.Rows ||
		math.Abs(got.ErrorPercent-want.ErrorPercent) > 1e-9 || math.Abs(got.BiasPercent-want.BiasPercent) > 1e-9 {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A row without usable times is an error. Leaving it out would improve the mean.
func TestNothingIsLeftOut(t *testing.T) {
	if _, err := Summarise(nil); err == nil {
		t.Error("no rows have a mean")
	}
	for _, bad := range []Row{{"m", 7, 1000, 5, 0}, {"m", 7, 1000, math.NaN(), 5}, {"m", 7, 1000, 5, math.NaN()}, {"m", 7, 1000, 5, -1}, {"m", 7, 1000, math.Inf(1), 5}, {"m", 7, 1000, -1, 5}} {
		if _, err := Summarise([]Row{{"m", 1, 1000, 5, 5}, bad}); err == nil || !strings.Contains(err.Error(), "m at a batch of 7 on 1000m") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// The published prototype's own predictions (INFless' figure of its operator
// combination model; only the rows that its authors kept).
func TestPublishedRows(t *testing.T) {
	s, err := Summarise([]Row{{"catdog", 512, 16000, 27840.4, 23900}, {"catdog", 512, 4000, 27714.7, 23800}})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(s.All.ErrorPercent-16.467) > 0.01 {
		t.Errorf("mean %.3f %%", s.All.ErrorPercent)
	}
}
