package capacity

import (
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// An instance that executes k batches at the same time takes what k instances with the same times
// take, alone (the example of BoundsOf), as a part of a pool, and in full batches.
func TestConcurrency(t *testing.T) {
	c := Candidate{Config: cluster.Config{Batch: 8, Concurrency: 3, Resources: cluster.Resources{CPU: 1000}}, Exec: 50 * ms}
	if got := BoundsOf(c.Config, c.Exec, 200*ms, Exact); math.Abs(got.Low-160) > 1e-9 || math.Abs(got.Up-480) > 1e-9 {
		t.Errorf("it takes %+v", got)
	}
	one := c
	one.Config.Concurrency = 0
	half := Candidate{Config: cluster.Config{Batch: 4, Concurrency: 3, Resources: c.Config.Resources}, Exec: 30 * ms}
	halfOfOne := half
	halfOfOne.Config.Concurrency = 0
	for _, o := range []Options{Production(), Greedy(), Faithful()} {
		for _, queue := range []Queue{PerInstance, LateBound} {
			for _, slo := range []time.Duration{90 * ms, 120 * ms, 200 * ms, time.Second} {
				for _, rps := range []float64{1, 40, 700} {
					for _, crowded := range []bool{false, true} {
						d := Demand{RPS: rps, SLO: slo, Queue: queue, Crowded: crowded}
						d.Configs = []Candidate{one, halfOfOne}
						want := o.Choices(d)
						d.Configs = []Candidate{c, half}
						got := o.Choices(d)
						if len(got) != len(want) {
							t.Fatalf("%+v: %v, want %v", d, got, want)
						}
						for i := range got {
							if math.Abs(got[i].Range.Up-3*want[i].Range.Up) > 1e-6 || math.Abs(got[i].Range.Low-3*want[i].Range.Low) > 1e-6 {
								t.Errorf("%v under %v at %v/s: %+v, of one %+v", got[i].Config, d.SLO, rps, got[i].Range, want[i].Range)
							}
						}
					}
				}
			}
		}
	}
	var r, other Recall
	r.About(Production(), 200*ms, 0, LateBound, []Candidate{c, half})
	other.About(Production(), 200*ms, 0, LateBound, []Candidate{one, halfOfOne})
	if a, b := r.Range(c, 500), other.Range(one, 500); math.Abs(a.Up-3*b.Up) > 1e-6 {
		t.Errorf("as a running instance it takes %+v, of one %+v", a, b)
	}
}

// A candidate's smaller batches are those of configs with the same concurrency and members.
func TestSmallerBatchesOfTheSameKind(t *testing.T) {
	big := Candidate{Config: cluster.Config{Batch: 8, Parts: 2, Concurrency: 2, Resources: cluster.Resources{CPU: 2000}}, Exec: 500 * ms}
	small := Candidate{Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 2000}}, Exec: 10 * ms}
	rate := Production().AtRandom(200*ms, 10, 0)
	if up := Serves(big, []Candidate{big, small}, rate); up != 0 {
		t.Errorf("it takes %v/s with the times of an instance that is no set", up)
	}
}

// A set changes its quota in place if its members keep their threads.
func TestThreadsOfASet(t *testing.T) {
	of := func(cpu int) Choice {
		return Choice{Candidate: Candidate{Config: cluster.Config{Batch: 1, Parts: 4, Resources: cluster.Resources{CPU: cpu}}}}
	}
	choices := []Choice{of(2000), of(4000), of(8000)}
	if got := InPlace(choices, of(2000).Candidate, 1, true); len(got) != 1 || got[0].Config.CPU != 4000 {
		t.Errorf("four members of 500m become %v", got)
	}
}
