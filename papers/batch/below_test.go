package batch

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
	"github.com/faas-infer/faas-infer/papers/batch/latency"
)

// Batches of 1 and 4 take 1 and 2 s, with a mean of 2, as in the example of least.
func TestLeast(t *testing.T) {
	at, exec := Share{Cost: 1}, []float64{1, 1.5, 1.9, 2}
	for mean, want := range map[float64]float64{2: 2. / 3, 4: 0.5, 9: 0.5, 1: 1, 0: 1} {
		if got := least(at, exec, mean); math.Abs(got-want) > 1e-12 {
			t.Errorf("at a mean of %v: %v, want %v", mean, got, want)
		}
	}
	// Where larger batches are dear, single requests are the cheapest, whatever the mean.
	if got := least(at, []float64{1, 3, 6, 10}, 4); got != 1 {
		t.Errorf("%v", got)
	}
}

// No buffer's requests cost less than the lower bound, and a shorter timeout has no
// larger mean batch, whatever the times.
func TestLeastIsTheLeast(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		m := arrival.MMPP2(5+50*r.Float64(), 100+200*r.Float64(), 0.2+5*r.Float64(), 0.2+5*r.Float64())
		a, err := latency.NewAnalysis(m, 8)
		if err != nil {
			t.Fatal(err)
		}
		exec, at := []float64{r.Float64()}, Share{Cost: 1, Call: r.Float64()}
		for len(exec) < 8 {
			exec = append(exec, exec[len(exec)-1]+r.Float64())
		}
		last := 1.0
		for timeout := 0.0; timeout < 0.2; timeout += 0.02 {
			w, err := a.Waits(8, timeout)
			if err != nil {
				t.Fatal(err)
			}
			batches, mean := w.Batches(), w.MeanBatch()
			if c := Cost(at, exec, batches, mean); c < least(at, exec, mean)*(1-1e-9) {
				t.Errorf("a mean of %v costs %v, and %v is the least", mean, c, least(at, exec, mean))
			}
			if mean < last*(1-1e-9) {
				t.Errorf("a mean of %v after %v", mean, last)
			}
			last = mean
		}
	}
}

// With a bound the best choice is the same as without, if it costs less.
func TestBelow(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 40 {
		m := arrival.MMPP2(5+50*r.Float64(), 100+200*r.Float64(), 0.2+5*r.Float64(), 0.2+5*r.Float64())
		o := Objective{Arrivals: &m, SLO: 130 * ms, Quantile: 0.95, Steps: 12}
		shares := two()
		if r.IntN(2) == 0 {
			shares = boundedTo(1 + r.IntN(20))
		}
		plan, err := Solve(o, shares)
		if err != nil {
			t.Fatal(err)
		}
		o.Below = plan.Best.Cost * 1.01
		below, err := Solve(o, shares)
		if plan.Short != nil {
			if !errors.Is(err, ErrBelow) {
				t.Errorf("%v, %+v, where nothing meets the objective: %v", err, below.Best, plan.Short)
			}
			continue
		}
		if err != nil || below.Best != plan.Best {
			t.Errorf("%+v, %v instead of %+v", below.Best, err, plan.Best)
		}
		o.Below = plan.Best.Cost * (1 - 2*alike)
		if cheaper, err := Solve(o, shares); !errors.Is(err, ErrBelow) {
			t.Errorf("%+v, %v is cheaper than %+v", cheaper.Best, err, plan.Best)
		}
		o.Below = 0
		same, err := Check(o, shares, plan.Best)
		if err != nil || same.Short != nil || same.Best != plan.Best {
			t.Errorf("%+v, %v, %v by itself, was %+v", same.Best, same.Short, err, plan.Best)
		}
	}
}

// A plan for a choice that no longer meets the objective is short.
func TestCheckOfAnotherLoad(t *testing.T) {
	o := Objective{Rate: 50, SLO: 130 * ms, Quantile: 0.95}
	plan, err := Solve(o, boundedTo(2))
	if err != nil || plan.Short != nil {
		t.Fatal(err, plan.Short)
	}
	o.Rate = 1000
	if now, err := Check(o, boundedTo(2), plan.Best); err != nil || !errors.Is(now.Short, ErrRoom) {
		t.Errorf("%+v, %v, %v at another load", now.Best, now.Short, err)
	}
	o.Rate, o.SLO = 50, plan.Best.Percentile*9/10
	if now, err := Check(o, boundedTo(2), plan.Best); err == nil && now.Short == nil {
		t.Errorf("%+v for another objective", now.Best)
	}
}

// Looking for a cheaper choice takes less time than looking for the best.
func BenchmarkBelow(b *testing.B) {
	o, shares := staffing()
	plan, err := Solve(o, shares)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("nothing", func(b *testing.B) {
		o := o
		o.Below = plan.Best.Cost / 1.5
		for b.Loop() {
			if _, err := Solve(o, shares); !errors.Is(err, ErrBelow) {
				b.Fatal(err)
			}
		}
	})
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			if _, err := Check(o, shares, plan.Best); err != nil {
				b.Fatal(err)
			}
		}
	})
}
