package fidelity

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/cgroup"
	"github.com/faas-infer/faas-infer/lab/sim"
)

// Machine has this machine's times under one load.
type Machine struct {
	// Pace is the time of executions, divided by that of an instance alone.
	Pace float64
	// Way is the time of an exchange with an instance for one request, without the
	// instance's own work. Outer is the mean time of a request's way from the client to
	// the dispatcher and back.
	Way, Outer time.Duration
	// outers are samples of Outer.
	outers []time.Duration
}

// learn derives a Machine from a run under load, without CPU quotas, and the times of an
// instance alone. The mean latency that a client sees is the mean over the requests of
//
//	outer + queue + way(b) + pace·exec(b)
//
// The provider counts queue, Σ exec over batches, and batches by classes of sizes.
func learn(d *Driven, c *Curve) Machine {
	// batches is the sum of exec over batches. executions and ways are the sums of exec
	// and way over requests, of which there are members.
	var batches, members, executions, ways float64
	for _, s := range d.Counts.Sizes {
		if s.Batches <= 0 {
			continue
		}
		b := (s.Least + s.Largest) / 2
		exec, way := c.at(c.exec, b).Seconds(), c.at(c.way, b).Seconds()
		batches += s.Batches * exec
		members += s.Batches * b
		executions += s.Batches * b * exec
		ways += s.Batches * b * way
	}
	if members == 0 {
		return Machine{Pace: 1, Way: c.travel()}
	}
	m := Machine{Pace: d.Counts.Exec.Seconds() / batches, Way: c.travel()}
	queue := d.Counts.Queue.Seconds() / max(1, d.Counts.Queued)
	m.Outer = max(0, d.Mean-seconds(queue+ways/members+m.Pace*executions/members))
	// Outer is assumed to have the relative spread of the health checks.
	asked := mean(d.Front)
	for _, t := range d.Front {
		m.outers = append(m.outers, time.Duration(float64(t)/float64(max(1, asked))*float64(m.Outer)))
	}
	return m
}

// between returns the means of two measurements. drift is the relative change of execution
// times from the first to the second; it is below 0 if they became shorter.
func between(before, after Machine) (m Machine, drift float64) {
	m = Machine{
		Pace: (before.Pace + after.Pace) / 2, Way: (before.Way + after.Way) / 2, Outer: (before.Outer + after.Outer) / 2,
		outers: slices.Concat(before.outers, after.outers),
	}
	if before.Pace > 0 {
		drift = after.Pace/before.Pace - 1
	}
	return m, drift
}

// samples is the number of samples of the sum of a simulated latency and the way to the
// provider.
const samples = 50_000

// Seen adds the way between client and provider to simulated latencies. It returns the
// mean, the 99th percentile, and the part within the objective.
func (m *Machine) Seen(latency *sim.Histogram, slo time.Duration, seed uint64) (all, p99 time.Duration, within float64) {
	r := rand.New(rand.NewPCG(seed, 99))
	sums := make([]time.Duration, samples)
	for i := range sums {
		sums[i] = latency.Quantile((float64(i) + 0.5) / samples)
		if n := len(m.outers); n > 0 {
			sums[i] += m.outers[r.IntN(n)]
		} else {
			sums[i] += m.Outer
		}
	}
	slices.Sort(sums)
	in, _ := slices.BinarySearch(sums, slo+1)
	return latency.Mean() + m.Outer, sums[samples*99/100], float64(in) / samples
}

// Truth has the real execution times. It implements sim.Truth.
type Truth struct {
	Curve *Curve
	Pace  float64
	// Limited is set if CPU quotas hold.
	Limited bool
}

// Exec implements sim.Truth. The time includes the instance's other work, and the time to
// join and split a batch beyond that of a single request. They use its quota too.
func (t *Truth) Exec(_ cluster.Config, b int) (time.Duration, bool) {
	more := t.Curve.at(t.Curve.way, float64(b)) - t.Curve.way[0]
	return time.Duration(t.Pace*float64(t.Curve.at(t.Curve.exec, float64(b)))) + t.Curve.handling + max(0, more), true
}

// Factor implements sim.Truth.
func (t *Truth) Factor(r *rand.Rand) float64 { return t.Curve.factor(r) }

// Quota implements sim.Truth. It returns the quota that the local backend sets, 0 if quotas
// do not hold.
func (t *Truth) Quota(c cluster.Config) (part, period time.Duration) {
	if !t.Limited {
		return 0, 0
	}
	q, p := cgroup.Quota(c.CPU)
	return time.Duration(q) * time.Microsecond, time.Duration(p) * time.Microsecond
}
