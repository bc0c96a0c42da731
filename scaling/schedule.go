package scaling

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
)

// Candidate is a config that an instance could have, with the predicted time
// of its full batch, f(b, c, g) in Algorithm 1.
type Candidate struct {
	Config cluster.Config
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

// weigh is βc + g.
func (o Options) weigh(r cluster.Resources) float64 {
	return o.Beta*(float64(r.CPU)/1000) + float64(r.GPU)
}

// bounds is Eq. 1 as the options and the queue want it.
func (o Options) bounds(b int, exec, slo time.Duration, q Queue) Range {
	r := Bounds(b, exec, slo, o.Rounding)
	if q == LateBound {
		r.Low = 0
	}
	return r
}

// Demand is what Algorithm 1 is asked to place.
type Demand struct {
	// RPS is R_k, the residual load in requests per second.
	RPS float64
	// SLO is t_slo; 0 means none, and every config then meets it.
	SLO time.Duration
	// Percentile is how many % of the requests are to be within the SLO; 0 means
	// [DefaultPercentile]. Only [Options.Joint] plans for it.
	Percentile float64
	Configs    []Candidate
	Queue      Queue
	// Limit is the most instances that may be placed; 0 means no limit. With
	// a limit, an instance that takes its part of the load is preferred to a
	// more efficient one that is too small.
	Limit int
	// Nodes are the names of those that instances may be placed on; nil means any.
	Nodes []string
	// load is all of the function's, of which RPS is a part.
	load float64
	// crowded: there is no room for all load. What counts then is what is
	// served, and no room is kept for chance.
	crowded bool
}

// Placed is one instance that Algorithm 1 placed.
type Placed struct {
	Candidate
	Node  string
	Range Range
	// Efficiency is e_ij of Eq. 10, with the numerator normalised to [0, 1].
	Efficiency float64
}

// Reason says why load was left unplaced.
type Reason int

// The reasons.
const (
	// None: all was placed.
	None Reason = iota
	// NoConfig: no config meets the SLO.
	NoConfig
	// NoRoom: no node has room for any config that does.
	NoRoom
	// AtLimit: no more instances are allowed.
	AtLimit
	// NoNode: there is no node on which the function may have instances.
	NoNode
)

// Placement is what Algorithm 1 found.
type Placement struct {
	Placed []Placed
	// Residual is the load in requests per second that was left over, 0 if
	// none was; Reason says why.
	Residual float64
	Reason   Reason
	// Fastest is the config with the shortest time, where Reason is NoConfig
	// and there are configs at all.
	Fastest Candidate
}

// Explain says in a sentence why load was left over.
func (p Placement) Explain(slo time.Duration) string {
	switch {
	case p.Reason == NoConfig && p.Fastest.Exec > 0:
		return fmt.Sprintf("no config meets the SLO of %v: the fastest, %v, takes %v", slo, p.Fastest.Config, p.Fastest.Exec)
	case p.Reason == NoConfig:
		return "there is no config to choose from"
	case p.Reason == NoNode:
		return "there is no node on which the function may run"
	case p.Reason == NoRoom:
		return fmt.Sprintf("no node has room for %.3g requests/s more", p.Residual)
	case p.Reason == AtLimit:
		return fmt.Sprintf("%.3g requests/s are more than the allowed instances can take", p.Residual)
	}
	return "everything is placed"
}

// choice is a candidate that meets the SLO.
type choice struct {
	Candidate
	bounds Range
	// cost is βc + g.
	cost float64
}

// choices are lines 16–27 (AvailableConfig) but for R_k > r_low, which changes
// from instance to instance: the candidates that meet the SLO, the largest
// batch first. Candidates that cost nothing or have no rate (Paper above one
// second) are left out: Algorithm 1 would place them for ever.
func (o Options) choices(d Demand) []choice {
	var cs []choice
	if o.Joint && d.Queue == LateBound {
		cs = o.jointChoices(d)
	}
	if len(cs) == 0 {
		for _, c := range d.Configs {
			if o.meets(c, d.SLO) {
				cs = o.choice(cs, c, o.bounds(c.Config.Batch, c.Exec, d.SLO, d.Queue))
			}
		}
	}
	slices.SortFunc(cs, func(a, b choice) int {
		return cmp.Or(
			cmp.Compare(b.Config.Batch, a.Config.Batch),
			cmp.Compare(a.cost, b.cost),
			cmp.Compare(a.Config.Memory, b.Config.Memory),
			cmp.Compare(a.Config.CPU, b.Config.CPU),
			cmp.Compare(a.Exec, b.Exec),
		)
	})
	return cs
}

// choice adds a candidate that can be placed.
func (o Options) choice(cs []choice, c Candidate, bounds Range) []choice {
	r, cost := c.Config.Resources, o.weigh(c.Config.Resources)
	if r.CPU < 0 || r.GPU < 0 || r.Memory < 0 || r.GPUMemory < 0 || !(cost > 0) || !(bounds.Up > 0) {
		return cs
	}
	return append(cs, choice{c, bounds, cost})
}

// meets is Eq. 3 and 4 in the form of lines 21 and 25.
func (o Options) meets(c Candidate, slo time.Duration) bool {
	if slo <= 0 {
		return true
	}
	if c.Config.Batch > 1 && o.HalfSLO {
		return c.Exec <= slo-c.Exec
	}
	return c.Exec <= slo
}

// Schedule is Algorithm 1: it places instances for d's load on the nodes, one
// by one, each with the config and on the node of the highest Eq. 10, until
// the load is placed or nothing more fits. The nodes are left as they are.
// Equal efficiencies are decided by the config and the node's name, never by
// the order of the arguments.
func Schedule(d Demand, nodes []cluster.Node, o Options) Placement {
	return newRoom(nodes, o).schedule(d, 0)
}

// schedule is Algorithm 1 on what room there is, which it takes. It stops
// after most instances, if most is not 0.
func (r *room) schedule(d Demand, most int) Placement {
	if !(d.RPS > 0) {
		return Placement{}
	}
	d.RPS = min(d.RPS, math.MaxFloat32) // infinity less an instance is infinity
	p := Placement{Residual: d.RPS}
	choices := r.options.choices(d)
	if len(choices) == 0 {
		p.Reason, p.Fastest = NoConfig, fastest(d.Configs)
		return p
	}
	allowed := r.allowed(d.Nodes)
	if !allowed.any() {
		p.Reason = NoNode
		return p
	}
	for most == 0 || len(p.Placed) < most {
		if d.Limit > 0 && len(p.Placed) >= d.Limit {
			p.Reason = AtLimit
			return p
		}
		share := 0.0
		if d.Limit > 0 {
			share = p.Residual / float64(d.Limit-len(p.Placed))
		}
		best, ok := r.pick(choices, allowed, p.Residual, share, d.Queue)
		if !ok {
			p.Reason = NoRoom
			return p
		}
		r.take(best.node, best.Config.Resources) // line 13
		p.Placed = append(p.Placed, Placed{best.Candidate, r.places[best.node].name, best.bounds, best.efficiency})
		p.Residual -= best.bounds.Up // line 14
		if p.Residual <= negligible*d.RPS {
			p.Residual = 0
			return p
		}
	}
	return p
}

// negligible is the part of a load that is rounding, not requests.
const negligible = 1e-9

// fastest is the candidate with the shortest time; of those, the one with the
// smallest share and the largest batch.
func fastest(configs []Candidate) Candidate {
	var best Candidate
	for _, c := range configs {
		if c.Exec > 0 && (best.Exec == 0 || faster(c, best) < 0) {
			best = c
		}
	}
	return best
}

func faster(a, b Candidate) int {
	return cmp.Or(
		cmp.Compare(a.Exec, b.Exec),
		cmp.Compare(a.Config.CPU, b.Config.CPU),
		cmp.Compare(a.Config.GPU, b.Config.GPU),
		cmp.Compare(b.Config.Batch, a.Config.Batch),
		cmp.Compare(a.Config.Memory, b.Config.Memory),
	)
}
