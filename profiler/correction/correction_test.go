package correction

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
)

// cores is a share without a GPU.
func cores(millicores int) profiler.Share { return profiler.Share{CPU: millicores} }

// profile has times of 1 + b ms on one thread and six tenths of that on two.
func profile(margin float64) *profiler.Profile {
	p := &profiler.Profile{Model: "m", Engine: "e", Machine: "x"}
	for threads, part := range map[int]float64{1: 1, 2: 0.6} {
		for b := 1; b <= 32; b *= 2 {
			t := 1000 * (1 + float64(b)) * part
			p.Measurements = append(p.Measurements, profiler.Measurement{Batch: b, Threads: threads, Median: t, P95: t, CPU: t * float64(threads), Predicted: true, Margin: margin})
		}
	}
	slices.SortFunc(p.Measurements, func(a, b profiler.Measurement) int { return 100*(a.Threads-b.Threads) + a.Batch - b.Batch })
	return p
}

var start = time.Unix(1e9, 0)

// series passes a correction ten executions per second of one batch size on one share, and
// updates it every second.
type series struct {
	*Correction
	at                time.Time
	millicores, batch int
	// changes counts the times that differed from before by more than a
	// twentieth.
	changes int
}

func newSeries(p *profiler.Profile, quantile float64, millicores, batch int) *series {
	return &series{Correction: New(p, quantile), at: start, millicores: millicores, batch: batch}
}

// predicted is the prediction without its margin.
func (s *series) predicted() time.Duration { return s.share(cores(s.millicores)).predicted[s.batch-1] }

// run executes n batches that take ratio(i) times the prediction.
func (s *series) run(n int, ratio func(i int) float64) {
	held := s.Table(32, cores(s.millicores))
	for i := range n {
		s.at = s.at.Add(100 * time.Millisecond)
		s.Observe(s.at, []Observation{{Share: cores(s.millicores), Batch: s.batch, Exec: time.Duration(ratio(i) * float64(s.predicted()))}})
		if i%10 == 9 {
			s.Update(s.at)
			if now := s.Table(32, cores(s.millicores)); Differ(held, now) {
				held = now
				s.changes++
			}
		}
	}
	s.Update(s.at)
}

// times is the corrected time of the series' batch, over the prediction without margin.
func (s *series) times() float64 {
	t, _ := s.ExecTime(s.batch, cores(s.millicores))
	return float64(t) / float64(s.predicted())
}

func always(ratio float64) func(int) float64 { return func(int) float64 { return ratio } }

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance {
		t.Errorf("%s: %.3f, want %.3f", what, got, want)
	}
}

func TestWithoutEvidenceThePredictionHolds(t *testing.T) {
	for _, margin := range []float64{0, 0.5} {
		p := profile(margin)
		c := New(p, 0.95)
		c.Update(start)
		for _, share := range []int{100, 250, 500, 1000, 1500, 2000, 4000} {
			if got, want := c.Table(40, cores(share)), p.Table(40, cores(share)); !slices.Equal(got, want) {
				t.Errorf("at %dm: %v, want %v", share, got, want)
			}
		}
		shares := []int{250, 1000, 2000}
		if got, want := c.Correct(p.Candidates(shares, 32, 1<<30)), p.Candidates(shares, 32, 1<<30); !slices.Equal(got, want) {
			t.Errorf("candidates %v, want %v", got, want)
		}
		if _, ok := c.Ratio(cores(1000)); ok {
			t.Error("there is a ratio without evidence")
		}
	}
}

// INFless §3.3 adds 10 % to every prediction. If the prediction is right, little of that
// is left. A larger margin shrinks in the same way.
func TestMarginShrinks(t *testing.T) {
	for _, margin := range []float64{0.1, 0.6} {
		s := newSeries(profile(margin), 0.95, 1000, 4)
		near(t, "at first", s.times(), 1+margin, 0.001)
		last := s.times()
		for range 6 {
			s.run(100, func(i int) float64 { return 0.97 + 0.06*float64(i*7%100)/100 })
			if now := s.times(); now > last*1.001 {
				t.Errorf("it grew from %.3f to %.3f", last, now)
			}
			last = s.times()
		}
		near(t, "at last", last, 1.03, 0.02)
	}
}

func TestSlowerModel(t *testing.T) {
	s := newSeries(profile(0), 0.95, 1000, 4)
	s.run(20, always(2))
	if got := s.times(); got < 1.98 {
		t.Errorf("after 20 executions of twice the time the factor is %.3f", got)
	}
	s.run(600, always(2))
	near(t, "the factor", s.times(), 2, 0.05)
	if r, ok := s.Ratio(cores(1000)); !ok || math.Abs(r-2) > 0.03 {
		t.Errorf("ratio %.3f, %v", r, ok)
	}
	if s.changes > 3 {
		t.Errorf("%d changes on the way to one factor", s.changes)
	}
	s.run(1500, always(1))
	near(t, "the factor once it is as predicted", s.times(), 1, 0.05)
}

// An idle instance has its whole quota, so a batch rarely pauses for as long as the bound.
func TestFasterModel(t *testing.T) {
	for share, want := range map[int]float64{250: 1, 500: 1, 1500: 1, 1000: 0.7, 2000: 0.7} {
		s := newSeries(profile(0), 0.95, share, 4)
		s.run(900, always(0.7))
		near(t, "factor", s.times(), want, 0.03)
		s.run(900, always(0.2))
		near(t, "lowest factor", s.times(), max(0.5, math.Floor(want)), 0.03)
	}
}

// The first executions and rare outliers decide nothing.
func TestOutliersAreNotTheQuantile(t *testing.T) {
	s := newSeries(profile(0), 0.95, 1000, 1)
	s.run(3, always(20))
	near(t, "after three slow ones", s.times(), 1.1, 0.001)
	s = newSeries(profile(0), 0.95, 1000, 1)
	for range 10 {
		s.run(100, func(i int) float64 {
			if i%50 == 0 {
				return 20
			}
			return 1
		})
		if got := s.times(); got > 1.12 {
			t.Fatalf("two slow ones of a hundred make the factor %.3f", got)
		}
	}
	// For the 99th percentile they exceed the part that may be slower.
	s = newSeries(profile(0), 0.99, 1000, 1)
	s.run(2000, func(i int) float64 {
		if i%50 == 0 {
			return 20
		}
		return 1
	})
	if got := s.times(); got < 19 {
		t.Errorf("two slow ones of a hundred make the factor of the 99th percentile %.3f", got)
	}
}

func TestEvidenceIsBorrowed(t *testing.T) {
	factor := func(c *Correction, batch, share int) float64 {
		t, _ := c.ExecTime(batch, cores(share))
		return float64(t) / float64(c.share(cores(share)).predicted[batch-1])
	}
	slow := newSeries(profile(0), 0.95, 1000, 4)
	slow.run(100, always(2))
	for _, share := range []int{250, 1000, 2000} {
		for _, batch := range []int{1, 4, 32} {
			if got := factor(slow.Correction, batch, share); got < 1.9 {
				t.Errorf("slow at 1000m, b = 4: the factor of b = %d at %dm is %.2f", batch, share, got)
			}
		}
	}
	fast := newSeries(profile(0), 0.95, 1000, 4)
	fast.run(600, always(0.6))
	near(t, "fast at 1000m, other batches there", factor(fast.Correction, 16, 1000), 0.6, 0.08)
	if got := factor(fast.Correction, 4, 2000); got < 1 {
		t.Errorf("fast at 1000m: the factor at 2000m is %.2f", got)
	}
	part := newSeries(profile(0), 0.95, 250, 4)
	part.run(300, always(3))
	near(t, "slow at 250m, at 250m", factor(part.Correction, 4, 250), 3, 0.2)
	near(t, "slow at 250m, at 1000m", factor(part.Correction, 4, 1000), 1.1, 0.001)
	if got := factor(part.Correction, 4, 500); got < 2.5 {
		t.Errorf("slow at 250m: the factor at 500m is %.2f", got)
	}
	// A class's own evidence outweighs that of others.
	own := newSeries(profile(0), 0.95, 1000, 1)
	own.run(300, always(1))
	own.batch = 32
	own.run(300, always(2))
	near(t, "b = 1", factor(own.Correction, 1, 1000), 1, 0.05)
	near(t, "b = 32", factor(own.Correction, 32, 1000), 2, 0.1)
}

func TestEvidenceIsForgotten(t *testing.T) {
	s := newSeries(profile(0), 0.95, 1000, 4)
	s.run(600, always(2))
	if s.Update(s.at.Add(10*time.Minute)) || s.times() < 1.9 {
		t.Errorf("after ten minutes the factor is %.2f", s.times())
	}
	if !s.Update(s.at.Add(3 * time.Hour)) {
		t.Error("after three hours nothing has changed")
	}
	near(t, "after three hours", s.times(), 1.1, 0.001)
	if _, ok := s.Ratio(cores(1000)); ok {
		t.Error("after three hours there is still a ratio")
	}
}

// Thousands of executions within a moment count as one moment.
func TestOneMomentDoesNotDecide(t *testing.T) {
	s := newSeries(profile(0), 0.95, 1000, 1)
	s.run(600, always(1))
	burst := make([]Observation, 5000)
	for i := range burst {
		burst[i] = Observation{Share: cores(1000), Batch: 1, Exec: 5 * s.predicted()}
	}
	s.at = s.at.Add(100 * time.Millisecond)
	s.Observe(s.at, burst)
	s.Update(s.at)
	if got := s.times(); got > 1.12 {
		t.Errorf("a tenth of a second makes the factor %.2f", got)
	}
	for range 20 {
		s.at = s.at.Add(100 * time.Millisecond)
		s.Observe(s.at, burst)
	}
	s.Update(s.at)
	if got := s.times(); got < 4 {
		t.Errorf("two seconds of slow executions make the factor %.2f", got)
	}
}

func TestWhatIsNoObservation(t *testing.T) {
	c := New(profile(0), 0.95)
	for range 100 {
		c.Observe(start, []Observation{
			{Share: cores(0), Batch: 1, Exec: time.Second}, {Share: cores(1000), Exec: time.Second}, {Share: cores(1000), Batch: 33, Exec: time.Second},
			{Share: cores(1000), Batch: 1}, {Share: cores(1000), Batch: 1, Exec: -1}, {Share: cores(-5), Batch: 1, Exec: 1},
		})
	}
	c.Update(start)
	if got, want := c.Table(32, cores(1000)), profile(0).Table(32, cores(1000)); !slices.Equal(got, want) {
		t.Errorf("table %v", got)
	}
	for _, x := range [][2]int{{0, 1000}, {33, 1000}, {1, 0}, {1, -1}} {
		if _, ok := c.ExecTime(x[0], cores(x[1])); ok {
			t.Errorf("b = %d at %dm has a time", x[0], x[1])
		}
	}
	if c.Table(4, cores(0)) != nil || New(&profiler.Profile{}, 0.95).Table(4, cores(1000)) != nil {
		t.Error("there is a table without a share or a profile")
	}
}

func TestRanks(t *testing.T) {
	for _, c := range []struct {
		n         int
		q         float64
		high, low int
	}{
		{0, 0.95, -1, 0}, {58, 0.95, -1, 6}, {59, 0.95, 0, 6}, {298, 0.99, -1, 6}, {299, 0.99, 0, 6},
		{300, 0.95, 8, 21}, {10, 0.5, 1, 8},
	} {
		high, low := ranks(c.n, c.q)
		if high != c.high || low != c.low {
			t.Errorf("%d executions, quantile %v: %d and %d, want %d and %d", c.n, c.q, high, low, c.high, c.low)
		}
	}
}

func TestDiffer(t *testing.T) {
	ms := time.Millisecond
	for _, c := range []struct {
		a, b []time.Duration
		want bool
	}{
		{nil, nil, false}, {[]time.Duration{ms}, nil, true}, {[]time.Duration{100 * ms}, []time.Duration{105 * ms}, false},
		{[]time.Duration{100 * ms}, []time.Duration{106 * ms}, true}, {[]time.Duration{ms, 100 * ms}, []time.Duration{ms, 94 * ms}, true},
	} {
		if Differ(c.a, c.b) != c.want {
			t.Errorf("%v, %v: not %v", c.a, c.b, c.want)
		}
	}
}

// Evidence of a GPU's shares corrects these and not the CPU's, and survives a restart.
func TestSharesOfAGPU(t *testing.T) {
	p := profile(0)
	for _, g := range []int{20, 100} {
		for b := 1; b <= 32; b *= 2 {
			p.Measurements = append(p.Measurements, profiler.Measurement{Batch: b, Threads: 1, GPU: g, Median: 5e4 / float64(g), P95: 5e4 / float64(g), CPU: 100, Runs: 9})
		}
	}
	c, now := New(p, 0.95), start
	small, large := profiler.Share{CPU: 250, GPU: 20}, profiler.Share{CPU: 250, GPU: 100}
	for range 60 {
		now = now.Add(time.Second)
		for range 10 {
			c.Observe(now, []Observation{{Share: small, Batch: 1, Exec: 2 * c.share(small).predicted[0]}})
		}
		c.Update(now)
	}
	ratio := func(c *Correction, on profiler.Share) float64 {
		t, _ := c.ExecTime(1, on)
		promised, _ := c.Profile().ExecTime(1, on)
		return float64(t) / float64(promised)
	}
	if got := ratio(c, small); got < 1.7 {
		t.Errorf("on the share it is %.2f of the prediction", got)
	}
	if got := ratio(c, large); got < 1.2 {
		t.Errorf("on a larger share it is %.2f of the prediction", got)
	}
	if got := ratio(c, cores(1000)); got > 1 {
		t.Errorf("on the CPU it is %.2f of the prediction", got)
	}
	again := New(p, 0.95)
	if err := again.Restore(c.State(), now); err != nil {
		t.Fatal(err)
	}
	if got := ratio(again, small); got < 1.7 || ratio(again, cores(1000)) > 1 {
		t.Errorf("after a restart it is %.2f of the prediction", got)
	}
	cs := c.Correct(p.DeviceCandidates(profiler.Bounds{MaxBatch: 1}))
	if cs[0].GPU != 20 || cs[0].Exec < 2*c.share(small).predicted[0] {
		t.Errorf("%+v", cs[0])
	}
}
