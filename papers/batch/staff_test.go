package batch

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
	"github.com/faas-infer/faas-infer/papers/batch/latency"
)

func boundedTo(n int) []Share {
	shares := two()
	for i := range shares {
		shares[i].Instances = n
	}
	return shares
}

// With a bounded number of instances, the choice meets the objective when it is played
// through the queue of that many, and misses it with one less.
func TestStaffedChoiceMeets(t *testing.T) {
	m := arrival.MMPP2(20, 200, 1, 2)
	for _, o := range []Objective{
		{Arrivals: &m, SLO: 150 * ms, Quantile: 0.95, Steps: 12},
		{Arrivals: &m, SLO: 150 * ms, Quantile: 0.95, Steps: 12, Spread: 0.1},
		{Rate: 100, SLO: 120 * ms, Quantile: 0.99, Steps: 12},
	} {
		plan, err := Solve(o, boundedTo(30))
		if err != nil || plan.Short != nil {
			t.Fatal(err, plan.Short)
		}
		c, arrivals := plan.Best, arrival.Poisson(o.Rate)
		if o.Arrivals != nil {
			arrivals = m
		}
		if c.Instances < 1 || float64(c.Instances) <= c.Busy || c.Within < o.Quantile {
			t.Fatalf("%+v", c)
		}
		within := func(n int) float64 {
			b := latency.Buffer{Arrivals: arrivals, Batch: c.Batch, Timeout: c.Timeout.Seconds(), Service: seconds(two()[c.Share].Exec)}
			d, err := b.Play(latency.Reality{Instances: n, Spread: o.Spread})
			if err != nil {
				return 0 // too few
			}
			return d.CDF(o.SLO.Seconds())
		}
		if got := within(c.Instances); got < o.Quantile-0.01 || math.Abs(got-c.Within) > 0.01 {
			t.Errorf("%+v: of %d instances' requests %v are in time", c, c.Instances, got)
		}
		if got := within(c.Instances - 1); got > o.Quantile+0.01 {
			t.Errorf("%+v: of %d instances' requests %v are in time, too", c, c.Instances-1, got)
		}
	}
}

// Shares without room are passed over. If none has enough, the plan says so, with the
// choice whose instances are least busy.
func TestStaffedWithinRoom(t *testing.T) {
	o := Objective{Rate: 200, SLO: 200 * ms, Quantile: 0.95, Steps: 12}
	free, err := Solve(o, boundedTo(100))
	if err != nil {
		t.Fatal(err)
	}
	shares := boundedTo(100)
	shares[free.Best.Share].Instances = int(free.Best.Busy)
	tight, err := Solve(o, shares)
	if err != nil || tight.Short != nil || tight.Best.Share == free.Best.Share {
		t.Errorf("%+v, %v instead of %+v", tight.Best, tight.Short, free.Best)
	}
	o.Rate = 5000
	none, err := Solve(o, boundedTo(1))
	if err != nil || !errors.Is(none.Short, ErrRoom) || none.Best.Instances != 1 {
		t.Errorf("%+v, %v, %v", none.Best, none.Short, err)
	}
}

// With bounded instances a budget buys nearly the same as with an instance for every
// batch.
func TestStaffedBudget(t *testing.T) {
	o := Objective{Rate: 100, Quantile: 0.95, Budget: 0.035, Steps: 12}
	free, err := Solve(o, two())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Solve(o, boundedTo(50))
	if err != nil || got.Short != nil || got.Best.Instances < 1 || got.Best.Cost > o.Budget || got.Best.Percentile.Seconds() > maxSlowdown*free.Best.Percentile.Seconds()+1e-6 {
		t.Errorf("%+v, %v, %v; without bounds %+v", got.Best, got.Short, err, free.Best)
	}
}

// One pause of 200 s among gaps of a tenth of a second has the moments of a burst. The
// choice is made for the recorded requests, and they meet the objective.
func TestRecordedPause(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	gaps := make([]float64, 4000)
	for i := range gaps {
		gaps[i] = 0.005 + 0.01*r.Float64()
	}
	gaps[2000] = 200
	m, _, err := arrival.Fit(arrival.MomentsOf(gaps))
	if err != nil {
		t.Fatal(err)
	}
	o := Objective{Arrivals: &m, Recorded: gaps, SLO: 150 * ms, Quantile: 0.95, Steps: 12}
	plan, err := Solve(o, two())
	if err != nil || plan.Short != nil {
		t.Fatal(err, plan.Short)
	}
	record, err := latency.NewTrace(gaps)
	if err != nil {
		t.Fatal(err)
	}
	met, err := record.Replay(plan.Best.Batch, plan.Best.Timeout.Seconds(), seconds(two()[plan.Best.Share].Exec), latency.Reality{})
	if err != nil {
		t.Fatal(err)
	}
	if got := met.Quantile(0.95); plan.Phases != 0 || math.Abs(got/plan.Best.Percentile.Seconds()-1) > misfit {
		t.Errorf("%d phases, %+v, the recorded requests have %v s", plan.Phases, plan.Best, got)
	}
	o.Recorded = nil
	if fitted, err := Solve(o, two()); err != nil || fitted.Phases != 2 {
		t.Errorf("%d phases, %v", fitted.Phases, err)
	}
}

// If two phases fit the gaps, the plan uses them.
func TestRecordedThatFits(t *testing.T) {
	m := arrival.MMPP2(20, 200, 1, 2)
	s, gaps := m.Sampler(rand.New(rand.NewPCG(5, 6))), make([]float64, 20_000)
	for i := range gaps {
		gaps[i] = s.Seconds()
	}
	fit, _, err := arrival.Fit(arrival.MomentsOf(gaps))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Solve(Objective{Arrivals: &fit, Recorded: gaps, SLO: 150 * ms, Quantile: 0.95, Steps: 12}, two())
	if err != nil || plan.Phases != 2 {
		t.Errorf("%d phases, %v", plan.Phases, err)
	}
}

// Spread makes the percentile longer, as in the exact model with spread.
func TestSpreadCounts(t *testing.T) {
	o := Objective{Rate: 50, SLO: 100 * ms, Quantile: 0.99, Steps: 12, Spread: 0.3}
	plan, err := Solve(o, two())
	if err != nil || plan.Short != nil {
		t.Fatal(err, plan.Short)
	}
	c := plan.Best
	d, err := latency.Buffer{Arrivals: arrival.Poisson(50), Batch: c.Batch, Timeout: c.Timeout.Seconds(), Service: seconds(two()[c.Share].Exec)}.With(latency.Reality{Spread: 0.3})
	if err != nil {
		t.Fatal(err)
	}
	if got := d.CDF(0.1); math.Abs(got-c.Within) > 3e-3 || c.Within < 0.99 {
		t.Errorf("%+v: the model has %v", c, got)
	}
}

// staffing returns an objective and the configs of a machine with 16 cores, with room
// for some instances.
func staffing() (Objective, []Share) {
	var shares []Share
	for _, cores := range []float64{0.25, 0.5, 1, 2, 4, 8, 16} {
		s := Share{Cost: cores, Instances: int(16 / cores)}
		for k := 1; k <= 32; k++ {
			s.Exec = append(s.Exec, time.Duration(float64(2+k)*float64(5*ms)/math.Pow(cores, 0.8)))
		}
		s.Batches = []int{1, 2, 4, 8, 16, 32}
		shares = append(shares, s)
	}
	m := arrival.MMPP2(20, 120, 0.5, 0.5)
	return Objective{Arrivals: &m, SLO: 200 * ms, Quantile: 0.95}, shares
}

func BenchmarkStaffed(b *testing.B) {
	o, shares := staffing()
	for name, spread := range map[string]float64{"exact": 0, "spread": 0.1} {
		o.Spread = spread
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Solve(o, shares); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A process of two phases with the gaps' moments has bursts of a hundred requests at
// once that never came. The number of instances is for the recorded requests.
func TestBurstsThatNeverCame(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	var gaps []float64
	for range 4000 {
		rate := 600.
		if len(gaps) > 1000 {
			rate = 50
		}
		gaps = append(gaps, r.ExpFloat64()/rate)
	}
	// What Fit makes of the last minute of bursts at 600/s and 50/s between them.
	m, err := arrival.New([][]float64{{-45.163, 0.043}, {0, -4987.669}}, [][]float64{{45.12, 0}, {45.162, 4942.507}})
	if err != nil {
		t.Fatal(err)
	}
	o := Objective{Arrivals: &m, SLO: 150 * ms, Quantile: 0.99, Steps: 12}
	fitted, err := Solve(o, boundedTo(5))
	if err != nil || !errors.Is(fitted.Short, ErrRoom) {
		t.Fatalf("%+v, %v, %v: the process has no such bursts", fitted.Best, fitted.Short, err)
	}
	o.Recorded = gaps
	plan, err := Solve(o, boundedTo(5))
	if err != nil || plan.Short != nil || plan.Phases != 0 {
		t.Fatalf("%+v, %v, %v, %d phases", plan.Best, plan.Short, err, plan.Phases)
	}
	record, err := latency.NewTrace(o.gaps())
	if err != nil {
		t.Fatal(err)
	}
	c := plan.Best
	exec := seconds(two()[c.Share].Exec)
	if !o.reached(record, c, exec) {
		t.Errorf("with %+v the recorded requests do not meet the objective", c)
	}
	if c.Instances--; c.Instances > 0 && o.reached(record, c, exec) {
		t.Errorf("they do with %d instances, too", c.Instances)
	}
}
