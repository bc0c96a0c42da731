package published

import (
	"math"
	"testing"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
	"github.com/faas-infer/faas-infer/papers/batch/latency"
)

func published(t *testing.T, m arrival.MAP, batch int, timeout float64) *Model {
	t.Helper()
	a, err := latency.NewAnalysis(m, batch)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewModel(m, a, batch, timeout)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func equals(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9 {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// BATCH §IV, Eq. 7, 8 and 10: with λ = 20/s, T = 0.1 s and B = 3, π = e^−2·(1, 2) and the rest,
// and the third request comes after τ = 2/20 s.
func TestSection4Poisson(t *testing.T) {
	p := published(t, arrival.Poisson(20), 3, 0.1)
	e := math.Exp(-2)
	want := []float64{e, 2 * e, 1 - 3*e}
	mean := e + 2*2*e + 3*(1-3*e)
	for k, w := range want {
		equals(t, "π", p.Batches()[k], w)
		equals(t, "ρ", p.rho[k], float64(k+1)*w/mean)
	}
	equals(t, "the mean batch", p.MeanBatch(), mean)
	equals(t, "τ", p.fill, 0.1)
	equals(t, "τ of a higher rate", published(t, arrival.Poisson(40), 3, 0.1).fill, 0.05)
}

// BATCH §IV, the five cases of Eq. 9, with S = 1, 1.5 and 2 s, T = 0.1 s and τ = 0.05 s.
func TestSection4Cases(t *testing.T) {
	p, service := published(t, arrival.Poisson(40), 3, 0.1), []float64{1, 1.5, 2}
	one, two := p.rho[0], p.rho[0]+p.rho[1]
	for _, c := range []struct{ at, want float64 }{
		{1.05, 0},                 // 1: a lone request waits for T.
		{1.3, one},                // 4: between S_1 + T and S_2.
		{1.55, one + p.rho[1]/2},  // 2: half of T after S_2.
		{1.7, two},                // 4
		{2.025, two + p.rho[2]/2}, // 3: half of τ after S_3.
		{2.06, 1},                 // 5
	} {
		equals(t, "F", p.Within(service, c.at), c.want)
	}
	equals(t, "the quantile of case 2", p.Quantile(service, one+p.rho[1]/2), 1.55)
	// The times differ by less than T: the largest batch with S_k ≤ t decides, whatever the
	// others still wait for.
	equals(t, "F", p.Within([]float64{1, 1.02, 2}, 1.11), one+p.rho[1]*0.9)
}

// BATCH §IV, Eq. 13 to 15, with an MMPP(2) of 10 and 100/s that stays for 2 and 1 s.
func TestSection4Bursty(t *testing.T) {
	m := arrival.MMPP2(10, 100, 0.5, 1)
	alpha, rate := start(m, 4, 0.1)
	quiet, busy := 20/2., 100/4. // ev_1 over λ_1·T + 1 = 2, ev_2 over B.
	equals(t, "α_1", alpha[0], quiet/(quiet+busy))
	equals(t, "α_2", alpha[1], busy/(quiet+busy))
	equals(t, "the rate of τ", rate, (10*1+100*0.5)/1.5)
}

// The release's MAP of the seventh hour of NYS Thruway changes phases at requests only: its
// ω are 39.04 and 22.87/s, and τ has 58.5 requests/s where 87.4 come.
func TestReleaseOnMAP2(t *testing.T) {
	m, err := arrival.New([][]float64{{-55.650135, 0}, {0, -105.957535}}, [][]float64{{16.609367, 39.040768}, {22.869309, 83.088226}})
	if err != nil {
		t.Fatal(err)
	}
	if _, rate := start(m, 8, 0.1); math.Abs(rate-58.53) > 0.01 || math.Abs(m.Rate()-87.37) > 0.01 {
		t.Errorf("τ is of %v requests/s, and %v come", rate, m.Rate())
	}
}

// The distribution never falls, and a batch of one waits for nothing.
func TestPublishedRises(t *testing.T) {
	for _, timeout := range []float64{0.01, 0.1, 1} {
		p := published(t, arrival.MMPP2(20, 200, 1, 2), 6, timeout)
		service, last := []float64{0.1, 0.12, 0.13, 0.3, 0.31, 0.5}, 0.0
		for x := 0.0; x < 2; x += 0.001 {
			f := p.Within(service, x)
			if f < last-1e-12 || f > 1+1e-9 {
				t.Fatalf("F(%v) is %v after %v", x, f, last)
			}
			last = f
		}
	}
	if p := published(t, arrival.Poisson(5), 1, 0.3); p.Within([]float64{0.2}, 0.2) != 1 || p.Within([]float64{0.2}, 0.19) != 0 {
		t.Error("a batch of one waits")
	}
}
