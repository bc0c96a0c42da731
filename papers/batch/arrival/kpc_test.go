package arrival

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func sample(m MAP, n int) []float64 {
	s, gaps := m.Sampler(rand.New(rand.NewPCG(11, 12))), make([]float64, n)
	for i := range gaps {
		gaps[i] = s.Seconds()
	}
	return gaps
}

// Composition multiplies r_k of the parts, and 1 + SCV·ρ.
func TestCompositionMultipliesMoments(t *testing.T) {
	m := Moments{N: 1e6, Mean: 0.1, SCV: 5, Skewness: 8}
	got, note := compose(m, []part{{0.5, 0.3}, {0.99, 0.7}})
	if err := got.Validate(); err != nil || note != "" || got.Order() != 4 {
		t.Fatalf("%v, %q, order %d", err, note, got.Order())
	}
	close(t, "mean", 1/got.Rate(), 0.1, 1e-9)
	close(t, "SCV", got.SCV(), 5, 1e-9)
	close(t, "skewness", got.Skewness(), 8, 1e-9)
	// 1 + SCV = 6, so r₂ = 3; at lag 3, (1 + (3^0.3 − 1)·0.5³)(1 + (3^0.7 − 1)·0.99³) − 1.
	want := (1+(math.Pow(3, 0.3)-1)*math.Pow(0.5, 3))*(1+(math.Pow(3, 0.7)-1)*math.Pow(0.99, 3)) - 1
	close(t, "lag 3", 5*got.Autocorrelation(3), want, 1e-9)
}

// Four phases fit autocorrelations that fall off fast and then slowly better than two.
func TestKPCWhereOrder2DoesNotFit(t *testing.T) {
	true4, _ := compose(Moments{N: 1e6, Mean: 0.01, SCV: 5, Skewness: 6}, []part{{0.6, 0.5}, {0.995, 0.5}})
	gaps := sample(true4, 200_000)
	off := func(m MAP) float64 {
		sum := 0.0
		for _, lag := range []int{1, 3, 10, 30, 100, 300} {
			sum += math.Abs(m.Autocorrelation(lag) - true4.Autocorrelation(lag))
		}
		return sum
	}
	four, note, err := FitKPC(gaps, 4)
	if err != nil || four.Order() != 4 {
		t.Fatalf("order %d, %q, %v", four.Order(), note, err)
	}
	two, _, err := Fit(MomentsOf(gaps))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("autocorrelations are off by %.3f with four phases, %.3f with two", off(four), off(two))
	if off(four) > 0.3*off(two) {
		t.Errorf("four phases are off by %.3f, two by %.3f", off(four), off(two))
	}
	close(t, "mean", 1/four.Rate(), MomentsOf(gaps).Mean, 1e-9)
	close(t, "SCV", four.SCV(), MomentsOf(gaps).SCV, 1e-6)
}

// If order 2 fits, FitKPC does not take more phases.
func TestKPCKeepsOrder2(t *testing.T) {
	for name, m := range map[string]MAP{
		"in turn": {D0: dense([]float64{-10.1, 0}, []float64{0, -202}), D1: dense([]float64{0.1, 10}, []float64{200, 2})},
		"hyper":   {D0: dense([]float64{-200, 0}, []float64{0, -10}), D1: dense([]float64{198, 2}, []float64{1, 9})},
		"MMPP":    MMPP2(20, 200, 1, 2),
	} {
		got, note, err := FitKPC(sample(m, 50_000), 8)
		if err != nil || got.Order() != 2 {
			t.Errorf("%s: order %d, %q, %v", name, got.Order(), note, err)
		}
	}
}

func TestKPCOfRegularGaps(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var regular, equal []float64
	for range 5000 {
		regular = append(regular, 1+0.6*r.Float64()-0.3)
		equal = append(equal, 0.5)
	}
	m, note, err := FitKPC(regular, 64)
	if err != nil || !strings.Contains(string(note), "series") {
		t.Fatalf("%q, %v", note, err)
	}
	close(t, "mean", 1/m.Rate(), MomentsOf(regular).Mean, 1e-9)
	close(t, "SCV", m.SCV(), MomentsOf(regular).SCV, 1e-6)
	m, note, err = FitKPC(equal, 8)
	if err != nil || !strings.Contains(string(note), "less than order 8") {
		t.Fatalf("%q, %v", note, err)
	}
	close(t, "SCV", m.SCV(), 1.0/8, 1e-9)
}

func TestKPCRefuses(t *testing.T) {
	fine := sample(Poisson(1), 1000)
	for _, c := range []struct {
		gaps  []float64
		order int
		says  string
	}{
		{fine, 0, "order of 0"}, {fine, 1000, "order of 1000"}, {fine[:3], 4, "3 gaps"}, {nil, 4, "0 gaps"},
		{[]float64{1, -1}, 4, "gap 2"}, {[]float64{math.NaN()}, 4, "gap 1"}, {make([]float64, 50), 4, "mean gap is 0"},
	} {
		if _, _, err := FitKPC(c.gaps, c.order); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("order %d: %v, want %q", c.order, err, c.says)
		}
	}
	for _, order := range []int{1, 2, 4, 8} {
		if m, _, err := FitKPC(fine, order); err != nil || math.Abs(m.Rate()*MomentsOf(fine).Mean-1) > 1e-9 {
			t.Errorf("order %d: %v", order, err)
		}
	}
}

// The trace has one gap of 200 s among many of milliseconds: an SCV in the hundreds.
func TestKPCOfAPause(t *testing.T) {
	gaps := sample(Poisson(1000), 3000)
	gaps[1500] = 200
	for _, order := range []int{2, 4, 8} {
		m, note, err := FitKPC(gaps, order)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("order %d: %q, SCV %.4g", m.Order(), note, m.SCV())
		close(t, "rate", m.Rate()*MomentsOf(gaps).Mean, 1, 1e-6)
		close(t, "SCV", m.SCV()/MomentsOf(gaps).SCV, 1, 1e-3)
	}
}
