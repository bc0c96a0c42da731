// Package capacity is what instances can serve: with which configs ([Candidate]) they
// meet an SLO, how many requests per second each then takes (Eq. 1 of INFless, or as one
// of a pool to which requests come at random), and what it costs. Where they go is
// decided elsewhere.
package capacity

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
)

// Candidate is a config that an instance could have, with the predicted time
// of its full batch, f(b, c, g) in Algorithm 1.
type Candidate struct {
	// Artefact names what the instance loads.
	Artefact string
	Config   cluster.Config
	// Exec is the time within which a batch must be expected to end: whether
	// the SLO is met is decided by it.
	Exec time.Duration
	// Mean is the time that a batch takes on average, which says how many
	// requests an instance serves; 0 means Exec. Only [Options.Joint] tells
	// them apart.
	Mean time.Duration
	// Timeout is how long a batch's first request waits at most for others,
	// where the batching policy wants to be told (BATCH §III-C).
	Timeout time.Duration
}

// Candidates turns a profile's candidates into the scheduler's.
func Candidates(from []profiler.Candidate) []Candidate {
	configs := make([]Candidate, 0, len(from))
	for _, c := range from {
		configs = append(configs, Candidate{
			Config: cluster.Config{
				Batch:     c.Batch,
				Resources: cluster.Resources{CPU: c.CPU, GPU: c.GPU, Memory: c.Memory},
			},
			Exec: c.Exec,
		})
	}
	return configs
}

// Queue says how a function's requests reach its instances; it decides which
// of Algorithm 1's conditions make sense.
type Queue int

// The queues.
const (
	// PerInstance is INFless's: each instance waits for its own batch to
	// fill. A config is available only if the load fills its batch in time
	// (line 25: R_k > r_low), and the largest batch is tried first (line 3).
	PerInstance Queue = iota
	// LateBound is one queue per function from which a free instance takes
	// what waits. An unfilled batch costs nothing, so r_low is 0 and all
	// batch sizes compete in Eq. 10 at once. Trying the largest first would
	// give a function with one request per second the largest share, if only
	// that runs its largest batch in time.
	LateBound
)

// Options are the choices that the paper leaves open, or makes in a way that
// production cannot use.
type Options struct {
	Rounding Rounding
	// Beta is β, what one core is worth in % of a GPU; see [Beta]. Where no
	// node has a GPU, it cancels out.
	Beta float64
	// DemandCapped counts only the requests that are there: the RPS of
	// Eq. 10 is min(r_up, R_k), and a config counts as filling a server only
	// as far as the load needs it. Without, a function with one request per
	// second takes the share that fills the server best.
	DemandCapped bool
	// HalfSLO demands t_exec ≤ t_slo/2 of batches above one (Eq. 4, line
	// 25): a request waits for at most one execution before its own. Without,
	// t_exec ≤ t_slo suffices, and it is for the queue to keep batches small.
	HalfSLO bool
	// FragmentFloor is the least that the denominator of Eq. 10 may be. It is
	// 0 where an instance fills a server exactly, which no efficiency could
	// outweigh; with a floor of φ, the best packing counts 1/φ times the
	// worst.
	FragmentFloor float64
	// Joint plans for all functions at once, by patterns of whole nodes
	// ([packing]), instead of one instance after the other. It is for late-bound
	// queues: functions with a queue per instance are placed by Algorithm 1.
	Joint bool
	// Reserve is the part of the SLO that Joint leaves to what is not in the
	// times: the way to an instance and back, and the queue's own.
	Reserve float64
	// Vertical raises CPU quotas of running instances, where nodes have CPU
	// free, before new instances are started, and lowers them later: to
	// candidates that differ in CPU alone and have the same
	// [cluster.Config.Threads].
	Vertical bool
	// Placement says on which node an instance goes that Algorithm 1 places.
	Placement Placing
}

// Placing is how the node for an instance is found.
type Placing int

// The ways to place.
const (
	// BestFit is Eq. 10: the node whose free room is closest to what the
	// instance takes.
	BestFit Placing = iota
	// Spread is the node with the most free room, as Kubernetes' scheduler
	// does by default (least allocated).
	Spread
	// FirstFit is the first node by name that has room.
	FirstFit
)

// Production is what the provider schedules with: all functions jointly.
func Production() Options {
	o := Greedy()
	o.Joint, o.Reserve, o.Vertical = true, 0.02, true
	return o
}

// Greedy is Algorithm 1 as a provider can use it. The fragment floor of 1/2
// lets a perfect fit count double: enough to fill gaps, and not enough for one
// instance that fills two cores at 70 % of the efficiency to displace two that
// have one core each.
func Greedy() Options {
	return Options{Rounding: Exact, Beta: DefaultBeta, DemandCapped: true, HalfSLO: true, FragmentFloor: 0.5}
}

// Faithful is Algorithm 1 as printed.
func Faithful() Options {
	return Options{Rounding: Paper, Beta: DefaultBeta, HalfSLO: true, FragmentFloor: 1e-6}
}

// DefaultBeta is β of INFless's testbed (Table 2): a core of a Xeon Silver
// 4215 does 2.5 GHz × 32 = 80 GFLOPS, 1 % of an RTX 2080Ti 134 GFLOPS.
const DefaultBeta = 0.6

// Beta is β from the FLOPS of one core and of one whole GPU (§3.4): with c in
// cores and g in % of a GPU, βc + g is in % of a GPU.
func Beta(coreFLOPS, gpuFLOPS float64) float64 { return coreFLOPS / (gpuFLOPS / 100) }

// Jointly reports whether functions with such a queue are planned for together.
func (o Options) Jointly(q Queue) bool { return o.Joint && q == LateBound }

// Of are the options by which a function with such a queue is planned for.
func (o Options) Of(q Queue) Options {
	o.Joint = o.Jointly(q)
	return o
}

// Objective is the SLO that capacity is planned for, if so much of it is left for
// executing: with the scheduler's reserve on top, which it takes off again.
func (o Options) Objective(left time.Duration) time.Duration {
	if o.Joint {
		return time.Duration(float64(left) / (1 - o.Reserve))
	}
	return left
}

// Halves reports whether batches of that size may take half of the SLO only (Eq. 4).
func (o Options) Halves(batch int) bool { return o.HalfSLO && !o.Joint && batch > 1 }

// Largest is the largest batch that an instance is started with which could have any of
// the candidates: with a larger quota it can then take larger batches. 0 is its own.
func (o Options) Largest(of []Candidate) (largest int) {
	if o.Joint {
		for i := range of {
			largest = max(largest, of[i].Config.Batch)
		}
	}
	return largest
}

// Weigh is βc + g.
func (o Options) Weigh(r cluster.Resources) float64 {
	return o.Beta*(float64(r.CPU)/1000) + float64(r.GPU)
}

// Bounds is Eq. 1 as the options and the queue want it.
func (o Options) Bounds(b int, exec, slo time.Duration, q Queue) Range {
	r := Bounds(b, exec, slo, o.Rounding)
	if q == LateBound {
		r.Low = 0
	}
	return r
}
