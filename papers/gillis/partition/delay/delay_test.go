package delay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The release's fit of Lambda, per element of 4 bytes.
var lambda = Transfer{
	UnitBytes:   4,
	Send:        Sized{2.765206182220345, 6.629996127305979e-07, 28.832586318285166, 7.41129460162582e-05, 0.9965843281779094, 2.1693192919678337e-06},
	Return:      Sized{2.7652061637888035, -6.376711465017302e-09, 28.832586317657142, 5.593645614280851e-05, 0.9965845859530119, 1.054867186790225e-06},
	Independent: true,
}

func draw(r *rand.Rand, e EMG) float64 {
	return e.Loc + e.Scale*r.NormFloat64() + e.K*e.Scale*r.ExpFloat64()
}

// trip draws a round trip as the release does: three independent delays.
func (t *Transfer) trip(r *rand.Rand, in, out int64) float64 {
	return draw(r, t.Send.at(float64(in)/t.UnitBytes)) + draw(r, t.Return.at(float64(out)/t.UnitBytes)) - draw(r, t.Send.at(0))
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s: %.5g, want %.5g within %.2g", what, got, want, tolerance)
	}
}

func TestEMGIsTheIntegralOfItsParts(t *testing.T) {
	for _, e := range []EMG{{2.765, 28.8, 0.9966}, {0.01, 0, 1}, {50, 3, 0.1}, {0, 5, 2}, {1, -2, 3}, {1e4, 0, 1e-4}} {
		theta := e.K * e.Scale
		for _, x := range []float64{-4, -1, 0, 0.5, 1, 3, 8, 40} {
			at := e.Loc + x*e.Scale
			// The exponential's quantile turns the sum into an integral over (0, 1).
			want, n := 0.0, 20000
			for i := range n {
				u := (float64(i) + 0.5) / float64(n)
				want += normalCDF((at-e.Loc+theta*math.Log(u))/e.Scale) / float64(n)
			}
			near(t, "CDF", e.CDF(at), want, 2e-4)
		}
		for _, q := range []float64{0.001, 0.5, 0.99, 0.9999} {
			near(t, "CDF of the quantile", e.CDF(e.Quantile(q)), q, 1e-6)
		}
	}
	if got := (EMG{0, 7, 0}); got.CDF(6.9) != 0 || got.CDF(7) != 1 || got.Quantile(0.3) != 7 {
		t.Error("a constant has no distribution")
	}
}

func TestFitFindsTheParametersAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, want := range []EMG{{2.765, 28.8, 0.9966}, {1, 5, 2}, {6, 0.3, 0.02}, {0.8, 100, 10}} {
		samples := make([]float64, 20000)
		for i := range samples {
			samples[i] = draw(r, want)
		}
		got, err := FitEMG(samples)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "K·scale", got.K*got.Scale, want.K*want.Scale, 0.04*want.K*want.Scale)
		near(t, "scale", got.Scale, want.Scale, 0.05*want.Scale)
		near(t, "loc", got.Loc, want.Loc, 0.1*want.Scale)
		near(t, "mean", got.Mean(), want.Mean(), 0.05*want.Scale)
	}
}

func TestFitOfOddSamples(t *testing.T) {
	if _, err := FitEMG(make([]float64, 19)); err == nil {
		t.Error("19 samples are fitted")
	}
	samples := slices.Repeat([]float64{3}, 20)
	if got, err := FitEMG(samples); err != nil || got != (EMG{Loc: 3}) {
		t.Errorf("equal samples: %v, %v", got, err)
	}
	samples[4] = math.NaN()
	if _, err := FitEMG(samples); err == nil {
		t.Error("NaN is fitted")
	}
	// A left skew has no exponential; the fit is close to the normal.
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 2000 {
		samples = append(samples[:min(i, len(samples))], -draw(r, EMG{3, 0, 1}))
	}
	got, err := FitEMG(samples)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "mean of a left skew", got.Mean(), momentsOf(samples).Mean, 0.2)
}

func TestFitFindsTheSlopesAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var samples []Sample
	for _, kib := range []int64{1, 256, 1024, 4096} {
		for range 5000 {
			samples = append(samples, Sample{kib << 10, draw(r, lambda.Send.at(float64(kib<<10)/4))})
		}
	}
	samples = append(samples, Sample{7, 1e6}) // One sample of a size does not count.
	r.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
	got, err := Fit(samples, 4)
	if err != nil {
		t.Fatal(err)
	}
	for _, mib := range []float64{0, 1, 3} {
		g, w := got.at(mib*262144), lambda.Send.at(mib*262144)
		near(t, "loc", g.Loc, w.Loc, 0.02*w.Loc)
		near(t, "mean", g.Mean(), w.Mean(), 0.02*w.Mean())
		near(t, "K·scale", g.K*g.Scale, w.K*w.Scale, 0.06*w.K*w.Scale)
	}
	if _, err := Fit(samples[:5], 4); err == nil {
		t.Error("five samples are fitted")
	}
}

// 1 MiB takes 19 ms there and 15 ms back with slopes per element. The release passes
// elements/1024, and its network is nearly free.
// Delays that are nearly exponential have one K, and their means are linear in the size.
func TestFitOfExponentials(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var samples []Sample
	mean := func(mib float64) float64 { return 0.15 + 2*mib }
	for _, size := range []int64{4 << 10, 64 << 10, 1 << 20, 4 << 20} {
		for range 400 {
			m := mean(float64(size) / (1 << 20))
			samples = append(samples, Sample{size, 0.5*m + 0.5*m*r.ExpFloat64()})
		}
	}
	d, err := Fit(samples, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, mib := range []float64{0.1, 1, 2} {
		e := d.at(mib)
		near(t, fmt.Sprintf("mean of %v MiB", mib), e.Mean(), mean(mib), 0.15*mean(mib))
	}
	if d.KPerUnit > 1e-9 {
		t.Errorf("%+v", d)
	}
}

func TestBothReadingsOfTheSlopes(t *testing.T) {
	const mib = 1 << 20
	trip := func(in, out int64, unit float64) float64 {
		l := lambda
		l.UnitBytes = unit
		return l.RoundTrip(in, out).Moments().Mean
	}
	empty := trip(0, 0, 4)
	near(t, "an empty call", empty, 31.59, 0.01)
	near(t, "loc of 1 MiB there", lambda.Send.at(mib/4).Loc-lambda.Send.Loc, 19.43, 0.01)
	near(t, "loc of 1 MiB back", lambda.Return.at(mib/4).Loc-lambda.Return.Loc, 14.66, 0.01)
	near(t, "1 MiB each way", trip(mib, mib, 4), 68.3, 0.1)
	near(t, "1 MiB each way as released", trip(mib, mib, 4096)-empty, 0.036, 0.002)
}

func TestRoundTripIsItsDraws(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, size := range [][2]int64{{0, 0}, {1 << 20, 1 << 18}, {8 << 20, 0}} {
		trip := lambda.RoundTrip(size[0], size[1])
		samples := make([]float64, 200000)
		for i := range samples {
			samples[i] = lambda.trip(r, size[0], size[1])
		}
		got, want := trip.Moments(), momentsOf(samples)
		near(t, "mean", got.Mean, want.Mean, 0.002*want.Mean)
		near(t, "variance", got.Variance, want.Variance, 0.02*want.Variance)
		near(t, "tail", got.Tail, want.Tail, 0.1*want.Tail+0.1)
		slices.Sort(samples)
		for _, q := range []float64{0.01, 0.2, 0.5, 0.9, 0.99} {
			near(t, "CDF", trip.CDF(samples[int(q*float64(len(samples)))]), q, 0.003)
		}
	}
}

// Added parameters make a round trip an EMG, with the noise of one empty call.
func TestRoundTripOfAddedParameters(t *testing.T) {
	l := lambda
	l.Independent = false
	e := l.Return.at(0)
	for _, x := range []float64{26, 29, 31, 40} {
		near(t, "CDF", l.RoundTrip(0, 0).CDF(x), e.CDF(x), 1e-9)
	}
	near(t, "mean of 1 MiB each way", l.RoundTrip(1<<20, 1<<20).Moments().Mean, 68.33, 0.01)
}

// OrderStatistic returns the largest of n round trips.
func OrderStatistic(n int, r RoundTrip) Largest {
	d := Delay{r.Moments().Mean, newNoise(r)}
	l := Largest{Floor: math.Inf(-1)}
	for range n {
		l.Delays = append(l.Delays, d)
	}
	return l
}

func TestOrderStatistics(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	trip := lambda.RoundTrip(1<<20, 1<<19)
	for _, n := range []int{1, 2, 4, 8, 16} {
		samples := make([]float64, 40000)
		for i := range samples {
			samples[i] = math.Inf(-1)
			for range n {
				samples[i] = max(samples[i], lambda.trip(r, 1<<20, 1<<19))
			}
		}
		l := OrderStatistic(n, trip)
		got, want := l.Moments(), momentsOf(samples)
		near(t, "mean", got.Mean, want.Mean, 0.002*want.Mean)
		near(t, "variance", got.Variance, want.Variance, 0.05*want.Variance)
		slices.Sort(samples)
		for _, q := range []float64{0.05, 0.5, 0.9, 0.99} {
			at := samples[int(q*float64(len(samples)))]
			near(t, "quantile", l.Quantile(q), at, 0.01*at)
		}
	}
}

// The mean of the largest of n exponentials is the harmonic number.
func TestOrderStatisticsOfExponentials(t *testing.T) {
	for n, harmonic := 1, 0.0; n <= 16; n++ {
		harmonic += 1 / float64(n)
		l := OrderStatistic(n, newRoundTrip(0, 0, 1))
		m := l.Moments()
		near(t, "mean", m.Mean, harmonic, 0.003)
	}
}

func TestLargestOfUnequalDelays(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	noises := Noises{}
	for range 20 {
		l := Largest{Floor: 40 + 80*r.Float64()}
		type trip struct {
			shift   float64
			in, out int64
		}
		var trips []trip
		for range 1 + r.IntN(6) {
			d := trip{30 * r.Float64(), r.Int64N(2 << 20), r.Int64N(2 << 20)}
			trips = append(trips, d)
			rt := lambda.RoundTrip(d.in, d.out)
			l.Delays = append(l.Delays, Delay{d.shift + rt.Moments().Mean, noises.Of(rt)})
		}
		samples := make([]float64, 20000)
		for i := range samples {
			samples[i] = l.Floor
			for _, d := range trips {
				samples[i] = max(samples[i], d.shift+lambda.trip(r, d.in, d.out))
			}
		}
		got, want := l.Moments(), momentsOf(samples)
		near(t, "mean", got.Mean, want.Mean, 0.003*want.Mean)
		near(t, "deviation", math.Sqrt(got.Variance), math.Sqrt(want.Variance), 0.05*math.Sqrt(want.Variance)+0.05)
		slices.Sort(samples)
		near(t, "99 %", l.Quantile(0.99), samples[len(samples)*99/100], 0.02*want.Mean)
	}
	if len(noises) > 20*6 {
		t.Errorf("%d tables", len(noises))
	}
}

func TestLargestOfConstants(t *testing.T) {
	constant := Noises{}.Of(RoundTrip{})
	l := Largest{3, []Delay{{5, constant}, {4, constant}}}
	if m := l.Moments(); m != (Moments{Mean: 5}) {
		t.Errorf("%+v, want 5", m)
	}
	l.Floor = 6
	if m := l.Moments(); m != (Moments{Mean: 6}) || l.Quantile(0.99) != 6 {
		t.Errorf("%+v, want 6", m)
	}
}

// A percentile of a sum of rounds is close to that of its draws, and errs on the long side.
func TestPercentilesOfSums(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, rounds := range []int{1, 2, 5, 10} {
		for _, workers := range []int{1, 4, 16} {
			l := OrderStatistic(workers, lambda.RoundTrip(1<<20, 1<<20))
			var sum Moments
			for range rounds {
				sum = sum.Plus(l.Moments())
			}
			samples := make([]float64, 40000)
			for i := range samples {
				for range rounds {
					largest := 0.0
					for range workers {
						largest = max(largest, lambda.trip(r, 1<<20, 1<<20))
					}
					samples[i] += largest
				}
			}
			slices.Sort(samples)
			deviation := math.Sqrt(sum.Variance)
			for _, percentile := range []float64{90, 95, 99, 99.9} {
				want := samples[int(percentile/100*float64(len(samples)))]
				got := sum.At(percentile)
				if got < want-0.3*deviation || got > want+0.6*deviation {
					t.Errorf("%d rounds of %d workers: %g %% below %.1f, want %.1f (deviation %.1f)", rounds, workers, percentile, got, want, deviation)
				}
			}
		}
	}
}

func TestPercentilesRise(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for range 10000 {
		m := Moments{100 * r.Float64(), 50 * r.Float64(), 10*r.Float64() - 1}
		p := 100 * r.Float64()
		at := m.At(p)
		more := Moments{m.Mean + r.Float64(), m.Variance + r.Float64(), m.Tail + r.Float64()}
		if more.At(p) < at || m.At(min(99.999, p+r.Float64())) < at-1e-9 || m.At(p) < m.Mean {
			t.Fatalf("%+v at %g %%: %g", m, p, at)
		}
		// What the variance adds is concave in it.
		e := NewExcess(p, m.Tail)
		if mid := e.Of(m.Variance + 1); mid < (e.Of(m.Variance)+e.Of(m.Variance+2))/2-1e-9 {
			t.Fatalf("%+v: the excess is not concave", e)
		}
	}
	if m := (Moments{5, 4, 0}); m.At(0) != 5 || m.At(50) != 5 {
		t.Errorf("at 0 and 50 %%: %g, %g", m.At(0), m.At(50))
	}
}
