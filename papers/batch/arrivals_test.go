package batch

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/papers/batch/arrival"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// arrive reports n requests of a process to a tuner, from a time on.
func arrive(u *Tuner, m arrival.MAP, n int, from time.Time) time.Time {
	s := m.Sampler(rand.New(rand.NewPCG(1, 2)))
	for range n {
		from = from.Add(s.Next())
		u.Arrived(from)
	}
	return from
}

// BATCH §III-A: the buffer's settings follow the burstiness of the arrivals, not only
// their rate.
func TestTunerFollowsBursts(t *testing.T) {
	u := NewTuner(system(t), systems.Function{SLO: 100 * ms, Percentile: 95}, model)
	now := time.Unix(1000, 0)
	now = arrive(u, arrival.Poisson(100), 3000, now)
	u.Candidates(now, 100)
	even := u.process
	if even == nil || even.SCV() < 0.8 || even.SCV() > 1.2 {
		t.Fatalf("Poisson arrivals are taken for %+v", even)
	}
	if r := even.Rate(); r < 99.9 || r > 100.1 {
		t.Errorf("a rate of %v", r)
	}
	// At the same rate, in bursts.
	bursts := arrival.MMPP2(20, 1000, 1, 11.25)
	now = arrive(u, bursts, 6000, now)
	u.Candidates(now, 100)
	if m := u.process; m == nil || m.SCV() < 2 {
		t.Errorf("bursts are taken for %+v", m)
	}
}

// Too few requests for a shape count as Poisson; so do requests that come all at once.
func TestTunerWithoutAShape(t *testing.T) {
	u := NewTuner(system(t), systems.Function{SLO: 100 * ms}, model)
	at := time.Unix(1000, 0)
	for range 20 {
		u.Arrived(at)
	}
	if list, _ := u.Candidates(at, 50); len(list) != 1 || u.process != nil {
		t.Errorf("%+v, %+v", list, u.process)
	}
	for range 500 {
		u.Arrived(at)
	}
	if list, _ := u.Candidates(at.Add(time.Minute), 500); len(list) != 1 || u.process != nil {
		t.Errorf("%+v, %+v", list, u.process)
	}
}

// A share has all batch sizes of its resources, the times of the largest, and a price.
func TestShares(t *testing.T) {
	small, large := cluster.Resources{CPU: 1000}, cluster.Resources{CPU: 2000, GPU: 10}
	all := []cluster.Config{{Batch: 1, Resources: small}, {Batch: 4, Resources: large}, {Batch: 2, Resources: small}}
	shares, configs := Shares(all, func(c cluster.Config) []time.Duration { return make([]time.Duration, c.Batch) }, Cluster{Beta: 0.6})
	if len(shares) != 2 || configs[0] != all[2] || configs[1] != all[1] {
		t.Fatalf("%+v, %+v", shares, configs)
	}
	if s := shares[0]; s.Cost != 0.6 || len(s.Exec) != 2 || len(s.Batches) != 2 {
		t.Errorf("%+v", s)
	}
	if s := shares[1]; s.Cost != 11.2 || len(s.Exec) != 4 {
		t.Errorf("%+v", s)
	}
}

// With a budget the batch policy minimises latency, without one the cost.
func TestBudget(t *testing.T) {
	cheap := system(t).Candidates(systems.Function{SLO: 200 * ms, Percentile: 95}, 100, model)
	fast := system(t).Candidates(systems.Function{SLO: 200 * ms, Percentile: 95, Stated: string(annotation.Stated("").With(BudgetKey, "10"))}, 100, model)
	if len(cheap) != 1 || len(fast) != 1 || fast[0].Exec >= cheap[0].Exec {
		t.Errorf("%+v and %+v", cheap, fast)
	}
}
