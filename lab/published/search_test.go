package published

import (
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	paper "github.com/faas-infer/faas-infer/papers/batch"
	"github.com/faas-infer/faas-infer/papers/batch/arrival"
	"github.com/faas-infer/faas-infer/papers/batch/latency"
)

const ms = time.Millisecond

// two returns a slow share and a dear one.
func two() []paper.Share {
	return []paper.Share{
		{Cost: 1, Exec: []time.Duration{40 * ms, 60 * ms, 80 * ms, 100 * ms}, Batches: []int{1, 2, 4}},
		{Cost: 3, Exec: []time.Duration{10 * ms, 14 * ms, 18 * ms, 22 * ms}, Batches: []int{1, 2, 4}},
	}
}

// BATCH §IV, Eq. 2: of all shares, batch sizes and timeouts of the release that keep Eq. 9's
// percentile within the SLO, the choice costs least by Eq. 1.
func TestSection4PublishedMinimisesCost(t *testing.T) {
	m := arrival.MMPP2(20, 200, 1, 2)
	o := paper.Objective{Arrivals: &m, SLO: 150 * ms, Quantile: 0.95}
	best, err := Optimise(o, two())
	if err != nil || best.Within < o.Quantile || best.Percentile > o.SLO {
		t.Fatalf("%+v, %v", best, err)
	}
	a, err := latency.NewAnalysis(m, 4)
	if err != nil {
		t.Fatal(err)
	}
	least := math.Inf(1)
	for _, s := range two() {
		for _, b := range s.Batches {
			for timeout := 0.01; timeout < 0.495; timeout += 0.01 {
				p, err := NewModel(m, a, b, timeout)
				if err != nil {
					t.Fatal(err)
				}
				if p.Within(seconds(s.Exec), o.SLO.Seconds()) >= o.Quantile {
					least = min(least, paper.Cost(s, seconds(s.Exec), p.Batches(), p.MeanBatch()))
				}
			}
		}
	}
	if math.Abs(best.Cost/least-1) > 1e-9 {
		t.Errorf("the choice costs %v, and %v is the least", best.Cost, least)
	}
}

// BATCH §IV, Eq. 3: more budget buys no higher percentile, and the choice stays within it. With
// too little, the choice is the cheapest.
func TestSection4PublishedMinimisesLatency(t *testing.T) {
	m := arrival.MMPP2(20, 200, 1, 2)
	last := time.Hour
	for _, budget := range []float64{0.026, 0.028, 0.03, 0.035, 0.04} {
		c, err := Optimise(paper.Objective{Arrivals: &m, Quantile: 0.95, Budget: budget}, two())
		if err != nil || c.Cost > budget || c.Percentile > last {
			t.Errorf("%v: %+v, %v after %v", budget, c, err, last)
		}
		last = c.Percentile
	}
	short, err := Optimise(paper.Objective{Arrivals: &m, Quantile: 0.95, Budget: 0.001}, two())
	if err != nil || short.Cost > 0.026 {
		t.Errorf("%+v, %v", short, err)
	}
}

// With an objective out of reach the choice has the lowest percentile: one request on the
// faster share.
func TestPublishedOutOfReach(t *testing.T) {
	c, err := Optimise(paper.Objective{Rate: 50, SLO: 5 * ms, Quantile: 0.95}, two())
	if err != nil || c.Share != 1 || c.Batch != 1 || c.Timeout != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := Optimise(paper.Objective{Rate: 50, SLO: 5 * ms, Quantile: 0.95}, nil); err == nil {
		t.Errorf("%v", err)
	}
}

// A line needs two rows, and no estimate is below the shortest row.
func TestPolynomialOfFewRows(t *testing.T) {
	p, err := FitPolynomial([]Row{{Batch: 1, Time: 10 * ms}, {Batch: 3, Time: 30 * ms}})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.At(2, cluster.Resources{}); (got - 20*ms).Abs() > time.Microsecond {
		t.Errorf("a batch of 2 takes %v", got)
	}
	if got := p.At(0, cluster.Resources{}); got != 10*ms {
		t.Errorf("less than the shortest row: %v", got)
	}
	for _, rows := range [][]Row{nil, {{Batch: 1}}, {{Time: ms}}} {
		if _, err := FitPolynomial(rows); err == nil {
			t.Errorf("%v are fitted", rows)
		}
	}
}
