package arrival

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func close(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within*max(1, math.Abs(want))) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// BATCH §IV: a Poisson process is the MMPP of one phase, or of two equal ones.
func TestSection4Poisson(t *testing.T) {
	for name, m := range map[string]MAP{"one phase": Poisson(20), "two equal phases": MMPP2(20, 20, 3, 4)} {
		close(t, name+" rate", m.Rate(), 20, 1e-12)
		close(t, name+" SCV", m.SCV(), 1, 1e-12)
		close(t, name+" skewness", m.Skewness(), 2, 1e-9)
		close(t, name+" lag 1", m.Autocorrelation(1), 0, 1e-12)
		close(t, name+" dispersion", m.Dispersion(), 1, 1e-9)
	}
}

// Eq. 15 has the mean rate of an MMPP(2): (λ₁ω₂ + λ₂ω₁)/(ω₁ + ω₂) = (20·2 + 200·1)/3
// = 80. Its index of dispersion is 1 + 2(λ₁−λ₂)²ω₁ω₂/((ω₁+ω₂)²(λ₁ω₂+λ₂ω₁))
// (Fischer and Meier-Hellstern 1993) = 1 + 2·180²·2/(9·240) = 61.
func TestSection4MMPP2(t *testing.T) {
	m := MMPP2(20, 200, 1, 2)
	close(t, "rate", m.Rate(), 80, 1e-12)
	close(t, "dispersion", m.Dispersion(), 61, 1e-9)
	close(t, "no lag", m.Autocorrelation(0), 1, 0)
	close(t, "negative lag", m.Autocorrelation(-1), 0, 0)
	ratio := m.Autocorrelation(2) / m.Autocorrelation(1)
	close(t, "autocorrelations fall off evenly", m.Autocorrelation(7)/m.Autocorrelation(6), ratio, 1e-9)
}

func TestErlangOfTwo(t *testing.T) {
	for _, d := range [][2][][]float64{
		{{{-2, 2}, {0, -2}}, {{0, 0}, {2, 0}}},
		{{{-2, 0}, {2, -2}}, {{0, 2}, {0, 0}}},
	} {
		m, err := New(d[0], d[1])
		if err != nil {
			t.Fatal(err)
		}
		close(t, "rate", m.Rate(), 1, 1e-12)
		close(t, "SCV", m.SCV(), 0.5, 1e-12)
		close(t, "skewness", m.Skewness(), math.Sqrt2, 1e-9)
		close(t, "dispersion", m.Dispersion(), 0.5, 1e-9)
	}
}

func TestNewRefuses(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		d0, d1 [][]float64
		says   string
	}{
		{nil, nil, "D0 has 0 rows"},
		{[][]float64{{-1}}, [][]float64{{1}, {1}}, "D1 2"},
		{[][]float64{{-1, 0}}, [][]float64{{1, 0}}, "row 1"},
		{[][]float64{{-1}}, [][]float64{{0}}, "sums to"},
		{[][]float64{{0}}, [][]float64{{0}}, "sums to"},
		{[][]float64{{1}}, [][]float64{{-1}}, "negative"},
		{[][]float64{{nan}}, [][]float64{{1}}, "finite"},
		{[][]float64{{-1, 1}, {1, -1}}, [][]float64{{0, 0}, {0, 0}}, "no request ever"},
		{[][]float64{{-1, 0}, {0, -1}}, [][]float64{{1, 0}, {0, 1}}, "never reached"},
		{[][]float64{{-1, -1}, {0, -1}}, [][]float64{{1, 1}, {0, 1}}, "negative"},
	} {
		if _, err := New(c.d0, c.d1); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, %v: %v, want %q", c.d0, c.d1, err, c.says)
		}
	}
	for _, m := range []MAP{{}, Poisson(0), Poisson(-1), Poisson(nan), Poisson(math.Inf(1)), MMPP2(0, 0, 1, 1), MMPP2(1, 2, 0, 1)} {
		if m.Validate() == nil {
			t.Errorf("%v is taken for a process", m)
		}
	}
	if _, err := New([][]float64{{-1.0000001}}, [][]float64{{1}}); err != nil {
		t.Errorf("rounding: %v", err)
	}
}

// process draws a MAP of the given order. Some of its phases have high rates, others
// low ones.
func process(r *rand.Rand, order int) MAP {
	for {
		d0, d1 := make([][]float64, order), make([][]float64, order)
		for i := range order {
			d0[i], d1[i] = make([]float64, order), make([]float64, order)
			for j := range order {
				if r.IntN(4) > 0 && j != i {
					d0[i][j] = math.Exp(6*r.Float64() - 3)
				}
				if r.IntN(4) > 0 {
					d1[i][j] = math.Exp(6*r.Float64() - 3)
				}
				d0[i][i] -= d1[i][j]
			}
			for j := range order {
				if j != i {
					d0[i][i] -= d0[i][j]
				}
			}
		}
		if m, err := New(d0, d1); err == nil {
			return m
		}
	}
}

// covariance is the covariance of gaps lag apart.
func covariance(gaps []float64, mean float64, lag int) float64 {
	sum := 0.0
	for i := range len(gaps) - lag {
		sum += (gaps[i] - mean) * (gaps[i+lag] - mean)
	}
	return sum / float64(len(gaps)-lag)
}

// Samples of many gaps have the moments of the process, within several standard
// errors.
func TestSamplesHaveTheMoments(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for order := 1; order <= 4; order++ {
		m := process(r, order)
		s := m.Sampler(r)
		gaps := make([]float64, 300_000)
		for i := range gaps {
			gaps[i] = s.Seconds()
		}
		got, want := MomentsOf(gaps), m.Moments()
		t.Logf("order %d: %+v, sampled %+v", order, want, got)
		close(t, "mean", got.Mean/want.Mean, 1, 0.03)
		close(t, "SCV", got.SCV/want.SCV, 1, 0.08)
		close(t, "skewness", got.Skewness/want.Skewness, 1, 0.2)
		close(t, "lag 1", got.Lag1, want.Lag1, 0.02)
		close(t, "lag 3", covariance(gaps, got.Mean, 3)/(got.SCV*got.Mean*got.Mean), m.Autocorrelation(3), 0.02)
	}
	a, b := Poisson(3).Sampler(rand.New(rand.NewPCG(1, 1))), Poisson(3).Sampler(rand.New(rand.NewPCG(1, 1)))
	if d := a.Next(); d != time.Duration(b.Seconds()*1e9) {
		t.Errorf("Next is %v", d)
	}
}

// The counts of long times vary by the index of dispersion.
func TestSamplesHaveTheDispersion(t *testing.T) {
	m := MMPP2(20, 200, 1, 2)
	s := m.Sampler(rand.New(rand.NewPCG(5, 6)))
	const span, spans = 20.0, 1500
	var counts [spans]float64
	for at := s.Seconds(); at < span*spans; at += s.Seconds() {
		counts[int(at/span)]++
	}
	sum, square := 0.0, 0.0
	for _, c := range counts {
		sum += c
		square += c * c
	}
	mean := sum / spans
	close(t, "dispersion", (square/spans-mean*mean)/mean/m.Dispersion(), 1, 0.1)
}
