package fidelity

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/cgroup"
	"github.com/faas-infer/faas-infer/lab/sim"
)

// Machine is what this machine takes under one load.
type Machine struct {
	// Pace is how long executions take, over those of an instance alone.
	Pace float64
	// Way is an exchange with an instance besides its own work for one request, Outer
	// the mean of what a request's way between client and dispatcher takes, there
	// and back.
	Way, Outer time.Duration
	// outers is how Outer is spread.
	outers []time.Duration
}

// Learn draws from a run under load, without CPU quotas, in what executions and
// ways differ from those of an instance alone. The mean latency that a client sees is
//
//	outer + queue + way(b) + pace·exec(b)
//
// over the requests. Of that the provider counts queue, Σ exec over batches, and
// batches by classes of sizes.
func Learn(d *Driven, c *Curve) Machine {
	// Sums over batches of their executions alone; over requests, of the
	// executions that they are in and of their ways.
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
	m.Outer = max(0, d.Mean-Seconds(queue+ways/members+m.Pace*executions/members))
	// Requests that only go to the provider and back spread as these do.
	asked := mean(d.Front)
	for _, t := range d.Front {
		m.outers = append(m.outers, time.Duration(float64(t)/float64(max(1, asked))*float64(m.Outer)))
	}
	return m
}

// Between is what a machine takes between two measurements, and by which part
// executions took longer in the second than in the first; less than 0 is shorter.
func Between(before, after Machine) (m Machine, drift float64) {
	m = Machine{
		Pace: (before.Pace + after.Pace) / 2, Way: (before.Way + after.Way) / 2, Outer: (before.Outer + after.Outer) / 2,
		outers: slices.Concat(before.outers, after.outers),
	}
	if before.Pace > 0 {
		drift = after.Pace/before.Pace - 1
	}
	return m, drift
}

// drawn is how often the latencies of a simulation and the ways to the provider are
// put together.
const drawn = 50_000

// Seen adds the ways between client and provider to latencies, and returns the mean,
// the 99th percentile, and which part is within the objective.
func (m *Machine) Seen(latency *sim.Histogram, slo time.Duration, seed uint64) (all, p99 time.Duration, within float64) {
	r := rand.New(rand.NewPCG(seed, 99))
	sums := make([]time.Duration, drawn)
	for i := range sums {
		sums[i] = latency.Quantile((float64(i) + 0.5) / drawn)
		if n := len(m.outers); n > 0 {
			sums[i] += m.outers[r.IntN(n)]
		} else {
			sums[i] += m.Outer
		}
	}
	slices.Sort(sums)
	in, _ := slices.BinarySearch(sums, slo+1)
	return latency.Mean() + m.Outer, sums[drawn*99/100], float64(in) / drawn
}

// Truth is how long executions really take; it implements sim.Truth.
type Truth struct {
	Curve *Curve
	Pace  float64
	// Limited: CPU quotas hold.
	Limited bool
}

// Exec implements sim.Truth. What the instance does besides, and what joining and
// splitting a batch takes beyond that of a single request, is its work, too, for
// which it needs its quota.
func (t *Truth) Exec(_ cluster.Config, b int) (time.Duration, bool) {
	more := t.Curve.at(t.Curve.way, float64(b)) - t.Curve.way[0]
	return time.Duration(t.Pace*float64(t.Curve.at(t.Curve.exec, float64(b)))) + t.Curve.handling + max(0, more), true
}

// Factor implements sim.Truth.
func (t *Truth) Factor(r *rand.Rand) float64 { return t.Curve.factor(r) }

// Quota implements sim.Truth: the one that the local backend sets.
func (t *Truth) Quota(c cluster.Config) (part, period time.Duration) {
	if !t.Limited {
		return 0, 0
	}
	q, p := cgroup.Quota(c.CPU)
	return time.Duration(q) * time.Microsecond, time.Duration(p) * time.Microsecond
}
