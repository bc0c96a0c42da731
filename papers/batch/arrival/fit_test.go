package arrival

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// same compares moments.
func same(t *testing.T, what string, got MAP, want Moments) {
	t.Helper()
	m := got.Moments()
	close(t, what+": mean", m.Mean/want.Mean, 1, 1e-6)
	close(t, what+": SCV", m.SCV, want.SCV, 1e-6)
	close(t, what+": skewness", m.Skewness, want.Skewness, 1e-5)
	close(t, what+": lag 1", m.Lag1, want.Lag1, 1e-6)
}

// The moments of a process of order 2 determine it (BATCH, §IV). So a fit to them
// returns the same moments, whatever the SCV and the sign of the autocorrelation.
func TestSection4FitGivesMomentsBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[string]int{}
	for range 3000 {
		want := process(r, 2).Moments()
		if math.Abs(want.SCV-1) < 2*sameAsPoisson {
			continue
		}
		got, note, err := Fit(want)
		if err != nil || note != "" {
			t.Fatalf("%+v: %q, %v", want, note, err)
		}
		same(t, "fit", got, want)
		seen[map[bool]string{true: "hyper", false: "hypo"}[want.SCV > 1]+map[bool]string{true: "+", false: "-"}[want.Lag1 > 0]]++
	}
	for _, kind := range []string{"hyper+", "hyper-", "hypo+", "hypo-"} {
		if seen[kind] < 10 {
			t.Errorf("of kind %s there were only %d", kind, seen[kind])
		}
	}
}

func TestFitOfKnownProcesses(t *testing.T) {
	for name, m := range map[string]MAP{
		"MMPP": MMPP2(10, 200, 0.01, 0.01), "slow": MMPP2(0.001, 50, 1e-4, 1), "Erlang": {D0: dense([]float64{-2, 2}, []float64{0, -2}), D1: dense([]float64{0, 0}, []float64{2, 0})},
		"in turn": {D0: dense([]float64{-10.1, 0}, []float64{0, -202}), D1: dense([]float64{0.1, 10}, []float64{200, 2})},
	} {
		got, note, err := Fit(m.Moments())
		if err != nil || note != "" {
			t.Errorf("%s: %q, %v", name, note, err)
			continue
		}
		same(t, name, got, m.Moments())
	}
}

func TestFitTakesTheNearest(t *testing.T) {
	for _, c := range []struct {
		m    Moments
		says string
		want Moments
	}{
		{Moments{1e6, 1, 1, 2, 0}, "Poisson", Moments{0, 1, 1, 2, 0}},
		{Moments{100, 1, 1.3, 2, 0.1}, "Poisson", Moments{0, 1, 1, 2, 0}},
		{Moments{1000, 2, 0, 0, 0}, "less than order 2", Moments{0, 2, 0.5, math.Sqrt2, 0}},
		{Moments{1000, 2, 0.3, 1, 0.4}, "less than order 2", Moments{0, 2, 0.5, math.Sqrt2, 0}},
		{Moments{1e6, 1, 4, 50, 0.9}, "autocorrelation", Moments{0, 1, 4, 50, 0.375 * 0.99}},
		{Moments{1e6, 1, 4, 50, -0.9}, "autocorrelation", Moments{0, 1, 4, 50, math.NaN()}},
		{Moments{1e6, 1, 4, 1, 0.1}, "skewness", Moments{0, 1, 4, math.NaN(), 0.1}},
		{Moments{1e6, 1, 0.7, 9, 0}, "skewness", Moments{0, 1, 0.7, math.NaN(), 0}},
		{Moments{1e6, 1e-3, 400, 30, 0.2}, "", Moments{0, 1e-3, 400, math.NaN(), 0.2}},
	} {
		got, note, err := Fit(c.m)
		if err != nil || !strings.Contains(string(note), c.says) {
			t.Errorf("%+v: %q, %v", c.m, note, err)
			continue
		}
		m := got.Moments()
		t.Logf("%+v: %q: %+v", c.m, note, m)
		for _, f := range [][2]float64{{m.Mean, c.want.Mean}, {m.SCV, c.want.SCV}, {m.Skewness, c.want.Skewness}, {m.Lag1, c.want.Lag1}} {
			if !math.IsNaN(f[1]) {
				close(t, "nearest", f[0], f[1], 1e-6)
			}
		}
	}
}

func TestFitRefuses(t *testing.T) {
	for _, c := range []struct {
		m    Moments
		says string
	}{
		{Moments{}, "0 gaps"}, {Moments{N: 5, Mean: 1, SCV: 1}, "5 gaps"}, {Moments{N: 100}, "mean gap is 0"},
		{Moments{N: 100, Mean: math.NaN()}, "mean gap"}, {Moments{N: 100, Mean: 1, SCV: math.NaN()}, "finite"},
		{Moments{N: 100, Mean: 1, SCV: -1}, "negative"}, {Moments{N: 100, Mean: 1, SCV: 2, Skewness: math.Inf(1)}, "finite"},
	} {
		if _, _, err := Fit(c.m); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.m, err, c.says)
		}
	}
}

// Whatever the moments, a fit returns a process with that mean, or an error.
func FuzzFit(f *testing.F) {
	f.Add(100, 1.0, 2.0, 3.0, 0.1)
	f.Add(100, 1e-9, 0.0, 0.0, -1.0)
	f.Add(1000, 200.0, 1e5, 0.0, 1.0)
	f.Fuzz(func(t *testing.T, n int, mean, scv, skewness, lag1 float64) {
		if mean > 1e9 || mean < 1e-9 || scv > 1e8 || math.Abs(skewness) > 1e8 || math.Abs(lag1) > 1 {
			return
		}
		m, _, err := Fit(Moments{n, mean, scv, skewness, lag1})
		if err != nil {
			if n >= MinGaps && mean > 0 && scv >= 0 && !math.IsNaN(skewness+lag1) {
				t.Fatal(err)
			}
			return
		}
		if got := m.Rate() * mean; !(math.Abs(got-1) < 1e-4) {
			t.Fatalf("the rate is %v times that asked for", got)
		}
		if s := m.SCV() + m.Skewness() + m.Autocorrelation(1) + m.Dispersion(); math.IsNaN(s) {
			t.Fatalf("%+v", m.Moments())
		}
	})
}

func BenchmarkFit(b *testing.B) {
	m := MMPP2(10, 200, 0.01, 0.01).Moments()
	for b.Loop() {
		if _, _, err := Fit(m); err != nil {
			b.Fatal(err)
		}
	}
}
