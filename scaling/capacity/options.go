// Package capacity calculates what instances can serve: with which configs ([Candidate]) they
// meet an SLO, how many requests per second each then takes (Eq. 1 of INFless, or as one of a
// pool to which requests come at random), and what it costs. It does not decide on which nodes
// they go; package placing does. Begin with [Options.Choices].
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
	// Accuracy is that of the artefact in percent. Of plans that cost the same the more
	// accurate one is better.
	Accuracy float64
	// Config is the instance's. With a Config.Concurrency of k the instance serves what k
	// instances with the same times do. With Config.Parts it is a set, which takes its
	// resources of one node, or in equal parts of several.
	Config cluster.Config
	// Exec is the time within which a batch is expected to end, while the instance executes as
	// many others as it does at the same time. It decides whether the SLO is met.
	Exec time.Duration
	// Mean is the mean time of a batch. It decides how many requests an instance serves; 0
	// means Exec. Only [Options.Joint] distinguishes the two.
	Mean time.Duration
	// Timeout is the longest time that a batch's first request waits for others, if the
	// batching policy needs it (BATCH §III-C).
	Timeout time.Duration
	// Loading is how long an instance takes to load; 0 if unknown.
	Loading time.Duration
}

// Candidates turns a profile's candidates into the scheduler's.
func Candidates(from []profiler.Candidate) []Candidate {
	configs := make([]Candidate, 0, len(from))
	for _, c := range from {
		configs = append(configs, Candidate{
			Config: cluster.Config{
				Batch: c.Batch, Parts: c.Parts, Active: c.Active, Apart: c.Apart, Concurrency: c.Concurrency,
				Resources: cluster.Resources{CPU: c.CPU, GPU: c.GPU, Memory: c.Memory, GPUMemory: c.GPUMemory, Mapped: cluster.Mapping(c.Mapped)},
			},
			Exec: c.Exec,
		})
	}
	return configs
}

// ShareOf is the share by which a profile knows a config's times: for a set the CPU of the members
// that compute at the same time.
func ShareOf(c cluster.Config) profiler.Share { return profiler.Share{CPU: c.Computes(), GPU: c.GPU} }

// Queue says how a function's requests reach its instances. It decides which of Algorithm 1's
// conditions apply.
type Queue int

// The queues.
const (
	// PerInstance is INFless' queue: each instance waits for its own batch to fill. A
	// config is available only if the load fills its batch in time (line 25:
	// R_k > r_low). The largest batch is tried first (line 3).
	PerInstance Queue = iota
	// LateBound is one queue per function, from which a free instance takes the waiting
	// requests. An unfilled batch costs nothing, so r_low is 0 and all batch sizes compete
	// in Eq. 10 at once. If the largest were tried first, a function with one request per
	// second would get the largest share when only that runs its largest batch in time.
	LateBound
)

// Options are the choices that the paper leaves open, or makes in a way that
// production cannot use.
type Options struct {
	Rounding Rounding
	// Beta is β, the value of one core in % of a GPU (§3.4): with c in cores and g in % of a GPU,
	// βc + g is in % of a GPU. If no node has a GPU, it cancels out.
	Beta float64
	// DemandCapped counts only the present requests: the RPS of Eq. 10 is min(r_up, R_k),
	// and a config counts as filling a server only as far as the load needs it. Without
	// it, a function with one request per second takes the share that fills the server
	// best.
	DemandCapped bool
	// HalfSLO requires t_exec ≤ t_slo/2 for batches above one (Eq. 4, line 25): a request
	// waits for at most one execution before its own. Without it, t_exec ≤ t_slo is
	// enough, and the queue must keep batches small.
	HalfSLO bool
	// FragmentFloor is the minimum of the denominator of Eq. 10. The denominator is 0 if
	// an instance fills a server exactly, and no efficiency could outweigh that. With a
	// floor of φ, the best packing counts 1/φ times the worst.
	FragmentFloor float64
	// Joint plans for all functions at once, by patterns of whole nodes (package packing),
	// instead of one instance after the other. It applies to late-bound queues: functions
	// with a queue per instance are placed by Algorithm 1.
	Joint bool
	// Reserve is the part of the SLO that Joint reserves for times that are not predicted:
	// the way to an instance and back, and the queue's own time.
	Reserve float64
	// Vertical raises the CPU quotas of running instances, if nodes have free CPU, before
	// new instances start, and lowers them later. The new config differs in CPU and batch
	// size only and has the same [cluster.Config.Threads].
	Vertical bool
	// Placement is how Algorithm 1 chooses the node of an instance.
	Placement Placing
}

// Placing is a way to choose the node for an instance.
type Placing int

// The ways to place.
const (
	// BestFit is Eq. 10: the node whose free room is closest to the instance's need.
	BestFit Placing = iota
	// Spread is the node with the most free room, as Kubernetes' scheduler
	// does by default (least allocated).
	Spread
)

// Production returns the provider's options: all functions are planned jointly.
func Production() Options {
	o := Greedy()
	o.Joint, o.Reserve, o.Vertical = true, 0.02, true
	return o
}

// Greedy returns the options of Algorithm 1 as a provider can use it. With the fragment floor
// of 1/2 a perfect fit counts double. That is enough to fill gaps. It is not enough for one
// instance that fills two cores at 70 % of the efficiency to displace two with one core each.
func Greedy() Options {
	return Options{Rounding: Exact, Beta: DefaultBeta, DemandCapped: true, HalfSLO: true, FragmentFloor: 0.5}
}

// Faithful returns the options of Algorithm 1 as printed.
func Faithful() Options {
	return Options{Rounding: Paper, Beta: DefaultBeta, HalfSLO: true, FragmentFloor: 1e-6}
}

// β is what 1000 millicores are worth, the unit in which configs count. It is a CPU thread, on
// INFless' testbed half of a physical core.
const (
	// DefaultBeta is β of INFless' testbed (Table 2) if one thread does what its core does,
	// as one that computes alone: 2.5 GHz × 32 = 80 GFLOPS of a Xeon Silver 4215, over 134
	// GFLOPS of 1 % of an RTX 2080Ti. If both threads of each core compute, it is 0.3.
	DefaultBeta = 0.6
	// ReleaseBeta is β of INFless' release: 64 GFLOPS a thread and 142 for 1 % of a GPU.
	ReleaseBeta = 64.0 / 142
)

// Jointly reports whether functions with such a queue are planned together.
func (o Options) Jointly(q Queue) bool { return o.Joint && q == LateBound }

// Of returns the options that apply to a function with such a queue.
func (o Options) Of(q Queue) Options {
	o.Joint = o.Jointly(q)
	return o
}

// Objective is the SLO to plan capacity for, if left of it remains for execution. It adds the
// reserve, which the scheduler subtracts again.
func (o Options) Objective(left time.Duration) time.Duration {
	if o.Joint {
		return time.Duration(float64(left) / (1 - o.Reserve))
	}
	return left
}

// Halves reports whether batches of that size may take only half of the SLO (Eq. 4).
func (o Options) Halves(batch int) bool { return o.HalfSLO && !o.Joint && batch > 1 }

// Largest is the largest batch that an instance must be able to take to become any of the
// candidates: with a higher quota it can then take larger batches. 0 means its config's own.
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

// Cores is what resources are worth in millicores: c + g/β.
func (o Options) Cores(r cluster.Resources) float64 {
	if r.GPU == 0 || o.Beta == 0 {
		return float64(r.CPU)
	}
	return float64(r.CPU) + 1000*float64(r.GPU)/o.Beta
}

// Bounds is Eq. 1 with the options' rounding, for a queue.
func (o Options) Bounds(c cluster.Config, exec, slo time.Duration, q Queue) Range {
	r := BoundsOf(c, exec, slo, o.Rounding)
	if q == LateBound {
		r.Low = 0
	}
	return r
}
