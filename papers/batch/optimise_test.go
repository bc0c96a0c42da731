package batch

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/papers/batch/arrival"
	"github.com/faas-infer/faas-infer/papers/batch/latency"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Eq. 1 of BATCH §II-B for a request.
func TestSection2Cost(t *testing.T) {
	if p := (Cluster{Beta: 0.6}).Price(cluster.Resources{CPU: 2000, GPU: 10}); p != (systems.Price{PerSecond: 11.2}) {
		t.Errorf("2 cores and 10 %% of a GPU: %+v", p)
	}
	// Batches of 1 and 2 equally often, as at the function.
	if got := Cost(Share{Cost: 2, Call: 1}, []float64{1, 1.5}, []float64{0.5, 0.5}, 1.5); math.Abs(got-7./3) > 1e-12 {
		t.Errorf("a request costs %v", got)
	}
}

func two() []Share {
	return []Share{
		{Cost: 1, Exec: []time.Duration{40 * ms, 60 * ms, 80 * ms, 100 * ms}, Batches: []int{1, 2, 4}},
		{Cost: 3, Exec: []time.Duration{10 * ms, 14 * ms, 18 * ms, 22 * ms}, Batches: []int{1, 2, 4}},
	}
}

// Optimise is Solve for the best choice alone, whether or not it meets the objective. Without
// an SLO and a budget, it assumes an SLO of a second. ok is false if there is nothing to
// choose from.
func Optimise(o Objective, shares []Share) (best Choice, ok bool) {
	if o.SLO <= 0 && o.Budget <= 0 {
		o.SLO = time.Second
	}
	plan, err := Solve(o, shares)
	return plan.Best, err == nil
}

func TestOptimise(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     Objective
		share int
		batch int
	}{
		{"no load: nothing to wait for", Objective{SLO: 200 * ms, Quantile: 0.99}, 1, 1},
		{"a high load fills batches", Objective{Rate: 1000, SLO: 200 * ms, Quantile: 0.99}, 1, 4},
		{"a tight objective allows only the fast one, and nothing to wait", Objective{Rate: 1000, SLO: 12 * ms, Quantile: 0.99}, 1, 1},
		{"nothing meets it: the fastest", Objective{Rate: 1000, SLO: 9 * ms, Quantile: 0.99}, 1, 1},
		{"no objective", Objective{Rate: 1000, Quantile: 0.99}, 1, 4},
		{"as many as can be", Objective{Rate: math.Inf(1), SLO: 200 * ms, Quantile: 0.99}, 1, 4},
		{"no number", Objective{Rate: math.NaN(), SLO: 200 * ms, Quantile: 0.99}, 1, 1},
	} {
		got, ok := Optimise(c.o, two())
		if !ok || got.Share != c.share || got.Batch != c.batch {
			t.Errorf("%s: %+v, %v, want share %d, b = %d", c.name, got, ok, c.share, c.batch)
		}
		if got.Batch > 1 && got.Within < c.o.Quantile {
			t.Errorf("%s: %+v does not meet the objective", c.name, got)
		}
	}
	if _, ok := Optimise(Objective{Rate: 1, SLO: time.Second, Quantile: 0.99}, nil); ok {
		t.Error("something was chosen of nothing")
	}
	if _, ok := Optimise(Objective{Rate: 1, SLO: time.Second, Quantile: 0.99}, []Share{{Cost: 1, Batches: []int{1, 0, -1}}}); ok {
		t.Error("a batch without a time was chosen")
	}
}

// The predictions for the choice are those of the exact model. It meets the objective, and none
// of the tried choices is cheaper.
func TestSection4MinimiseCost(t *testing.T) {
	m := arrival.MMPP2(20, 200, 1, 2)
	o := Objective{Arrivals: &m, SLO: 150 * ms, Quantile: 0.95, Steps: 12}
	plan, err := Solve(o, two())
	if err != nil || plan.Short != nil {
		t.Fatal(err, plan.Short)
	}
	check(t, m, o, plan.Best)
	if plan.Best.Within < o.Quantile {
		t.Errorf("%+v", plan.Best)
	}
	for share := range two() {
		for _, b := range []int{1, 2, 4} {
			for step := range 13 {
				timeout := o.SLO * time.Duration(step) / 12
				d := exact(t, m, two()[share], b, timeout)
				s := two()[share]
				if d.CDF(o.SLO.Seconds()) >= o.Quantile && timeout+s.Exec[0] <= o.SLO && s.Exec[b-1] <= o.SLO {
					if c := Cost(s, seconds(s.Exec), d.Batches(), d.MeanBatch()); c < plan.Best.Cost*(1-1.1*alike) {
						t.Errorf("share %d, b = %d, %v costs %v, the choice %v", share, b, timeout, c, plan.Best.Cost)
					}
				}
			}
		}
	}
}

func exact(t *testing.T, m arrival.MAP, s Share, b int, timeout time.Duration) *latency.Distribution {
	t.Helper()
	d, err := latency.Buffer{Arrivals: m, Batch: b, Timeout: timeout.Seconds(), Service: seconds(s.Exec)[:b]}.Exact()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// check compares the predictions for a choice with the exact model.
func check(t *testing.T, m arrival.MAP, o Objective, c Choice) {
	t.Helper()
	s := two()[c.Share]
	d := exact(t, m, s, c.Batch, c.Timeout)
	p := d.Quantile(o.Quantile)
	if math.Abs(c.Percentile.Seconds()-p) > 2e-6 || o.SLO > 0 && math.Abs(c.Within-d.CDF(o.SLO.Seconds())) > 1e-9 {
		t.Errorf("%+v: the percentile is %v s, within the SLO %v", c, p, d.CDF(o.SLO.Seconds()))
	}
	if want := Cost(s, seconds(s.Exec), d.Batches(), d.MeanBatch()); math.Abs(c.Cost/want-1) > 1e-9 {
		t.Errorf("%+v: the cost is %v", c, want)
	}
}

// Eq. 3: more budget buys no higher percentile, and the choice stays within the
// budget.
func TestSection4MinimiseLatency(t *testing.T) {
	m := arrival.MMPP2(20, 200, 1, 2)
	last := time.Hour
	for _, budget := range []float64{0.026, 0.028, 0.03, 0.035, 0.04} {
		o := Objective{Arrivals: &m, Quantile: 0.95, Budget: budget, SLO: 0, Steps: 12}
		plan, err := Solve(o, two())
		if err != nil {
			t.Fatal(err)
		}
		if plan.Short != nil {
			t.Fatalf("%v: %v", budget, plan.Short)
		}
		check(t, m, o, plan.Best)
		if plan.Best.Cost > budget || plan.Best.Percentile > last {
			t.Errorf("%v: %+v after %v", budget, plan.Best, last)
		}
		last = plan.Best.Percentile
	}
}

// If the objective is out of reach, the error has the nearest one that is not.
func TestOutOfReach(t *testing.T) {
	o := Objective{Rate: 50, SLO: 5 * ms, Quantile: 0.95}
	plan, err := Solve(o, two())
	if err != nil || !errors.Is(plan.Short, ErrSLO) || plan.Best.Percentile != 10*ms {
		t.Errorf("%+v, %v", plan, err)
	}
	o.SLO = plan.Best.Percentile
	if plan, err = Solve(o, two()); err != nil || plan.Short != nil {
		t.Errorf("the nearest SLO, %v, is not met: %+v, %v", o.SLO, plan, err)
	}
	o = Objective{Rate: 50, SLO: 100 * ms, Quantile: 0.95, Budget: 0.001}
	if plan, err = Solve(o, two()); err != nil || !errors.Is(plan.Short, ErrBudget) || plan.Best.Within < 0.95 {
		t.Errorf("%+v, %v", plan, err)
	}
	o.Budget = plan.Best.Cost
	if plan, err = Solve(o, two()); err != nil || plan.Short != nil || plan.Best.Percentile > o.SLO {
		t.Errorf("the nearest budget, %v, is not met: %+v, %v", o.Budget, plan, err)
	}
}

// Equal objectives have equal answers.
func TestSolveIsDeterministic(t *testing.T) {
	o := Objective{Rate: 80, SLO: 120 * ms, Quantile: 0.9}
	first, _ := Solve(o, two())
	for range 3 {
		again, _ := Solve(o, two())
		if again != first {
			t.Fatalf("%+v and %+v", first, again)
		}
	}
}

func FuzzOptimise(f *testing.F) {
	f.Add(10.0, int64(100), 0.99, int64(20), int64(5), 8, 0.0)
	f.Fuzz(func(t *testing.T, rate float64, slo int64, quantile float64, first, more int64, n int, budget float64) {
		if first < 1 || more < 0 || first > 1e6 || more > 1e6 || slo < 0 || slo > 1e6 || n < 1 || n > 16 {
			return
		}
		s := Share{Cost: 2}
		for k := range n {
			s.Exec = append(s.Exec, time.Duration(first+int64(k)*more)*ms)
			s.Batches = append(s.Batches, k+1)
		}
		got, ok := Optimise(Objective{Rate: rate, SLO: time.Duration(slo) * ms, Quantile: quantile, Budget: budget, Steps: 4}, []Share{s})
		if !ok || got.Batch < 1 || got.Batch > n || got.Timeout < 0 || math.IsNaN(got.Cost) || math.IsNaN(got.Within) {
			t.Fatalf("%+v, %v", got, ok)
		}
	})
}
