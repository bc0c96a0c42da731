package capacity

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Demand is a load to serve and to place.
type Demand struct {
	// RPS is R_k, the residual load in requests per second.
	RPS float64
	// SLO is t_slo; 0 means none, and every config then meets it.
	SLO time.Duration
	// Percentile is the part in % of the requests that must be within the SLO; 0 means
	// [StaffingPercentile]. Only [Options.Joint] plans for it.
	Percentile float64
	Configs    []Candidate
	Queue      Queue
	// Limit is the maximum number of instances to place; 0 means no limit. With a limit,
	// an instance that takes its part of the load is preferred to a more efficient one
	// that is too small.
	Limit int
	// Nodes has the names of the nodes on which instances may go; nil means any.
	Nodes []string
	// Tenant says which devices serve the function.
	Tenant cluster.Tenant
	// Load is the function's whole load. RPS is a part of it.
	Load float64
	// Crowded: there is no room for all load. Then only the served load counts, and no
	// room is kept for chance.
	Crowded bool
}

// Choice is a candidate that meets the SLO.
type Choice struct {
	Candidate
	// Range is the load that such an instance serves.
	Range Range
	// Cost is βc + g.
	Cost float64
}

// Choices is lines 16–27 (AvailableConfig) without R_k > r_low, which changes from instance to
// instance. It returns the candidates that meet the SLO, the largest batch first. It leaves out
// candidates that cost nothing or have no rate (with Paper above one second): Algorithm 1 would
// place them for ever.
func (o Options) Choices(d Demand) []Choice {
	var cs []Choice
	if o.Jointly(d.Queue) {
		cs = o.jointChoices(d)
	}
	if len(cs) == 0 {
		for _, c := range d.Configs {
			if o.Meets(c, d.SLO) {
				cs = o.choice(cs, c, o.Bounds(c.Config, c.Exec, d.SLO, d.Queue))
			}
		}
	}
	slices.SortFunc(cs, func(a, b Choice) int {
		return cmp.Or(
			cmp.Compare(b.Config.Batch, a.Config.Batch),
			cmp.Compare(a.Cost, b.Cost),
			cmp.Compare(a.Config.Memory, b.Config.Memory),
			cmp.Compare(a.Config.CPU, b.Config.CPU),
			cmp.Compare(a.Exec, b.Exec),
		)
	})
	return cs
}

// choice adds a candidate to cs if it can be placed.
func (o Options) choice(cs []Choice, c Candidate, bounds Range) []Choice {
	r, cost := c.Config.Resources, o.Weigh(c.Config.Resources)
	if r.CPU < 0 || r.GPU < 0 || r.Memory < 0 || r.GPUMemory < 0 || !(cost > 0) || !(bounds.Up > 0) {
		return cs
	}
	return append(cs, Choice{c, bounds, cost})
}

// Meets reports whether a candidate meets the SLO: Eq. 3 and 4 in the form of lines 21 and 25.
func (o Options) Meets(c Candidate, slo time.Duration) bool {
	if slo <= 0 {
		return true
	}
	if c.Config.Batch > 1 && o.HalfSLO {
		return c.Exec <= slo-c.Exec
	}
	return c.Exec <= slo
}

// Grown returns the candidate of configs with the largest batch that differs from c in nothing else, and that an
// instance may take under slo by [Options.Usable]. With a late-bound queue an unfilled batch costs nothing. An instance
// keeps its config, and a load that is low when it starts would bound its batches for good. For example eight GPUs, two of
// which started under a low load with batches of 6, bear 6 % less than eight with batches of 17.
func (o Options) Grown(c Candidate, configs []Candidate, slo time.Duration) Candidate {
	if !o.Joint {
		return c
	}
	best, limit := c, slo.Seconds()*(1-o.Reserve)
	for _, other := range configs {
		same := other.Config
		same.Batch = c.Config.Batch
		if same == c.Config && other.Artefact == c.Artefact && other.Config.Batch > best.Config.Batch && (slo <= 0 || other.Exec.Seconds() <= limit) {
			best = other
		}
	}
	return best
}

// Negligible is the part of a load below which a rest is only rounding.
const Negligible = 1e-9

// Fastest returns the candidate with the shortest time; of equal ones, the one with the
// smallest share and the largest batch.
func Fastest(configs []Candidate) Candidate {
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

// Raise returns the choice within cpu that serves at least residual more than up with the least
// CPU. If none does, it returns the one that serves most.
func Raise(larger []Choice, cpu int, up, residual float64) (Choice, bool) {
	var best Choice
	gained := 0.0
	for _, c := range larger {
		gain := c.Range.Up - up
		switch {
		case gain <= 0 || c.Config.CPU > cpu:
		case gained < residual && gain > gained,
			gain >= residual && c.Config.CPU < best.Config.CPU:
			best, gained = c, gain
		}
	}
	return best, gained > 0
}

// InPlace returns the choices that an instance can become while it runs. They differ from has in
// CPU, with more of it or with less, and may differ in batch size up to largest. They have the
// same number of threads. For example an instance that can take 32 at a time has 250m, at which
// only 1 is in time. It can become ⟨8,1000m⟩. The choices have the instance's own memory
// ([cluster.Config.Keeping]), not that of a new instance.
func InPlace(choices []Choice, has Candidate, largest int, more bool) []Choice {
	config := has.Config
	var all []Choice
	for _, c := range choices {
		c.Config = c.Config.Keeping(config)
		same := c.Config
		same.CPU = config.CPU
		if same.Batch <= largest {
			same.Batch = config.Batch
		}
		if c.Artefact == has.Artefact && same == config && c.Config.CPU != config.CPU && c.Config.CPU > config.CPU == more && threads(c.Config) == threads(config) {
			all = append(all, c)
		}
	}
	return all
}

// threads is the number of engine threads of an instance, or of each member of a set.
func threads(c cluster.Config) int { return c.Share().Threads() }

// Usable is the largest batch that an instance may take under slo, by Eq. 3 and 4, if a batch of
// b takes exec[b-1]. It is 0 if not even one request can be in time. With joint planning a batch
// may take the whole SLO less the reserve.
func (o Options) Usable(exec []time.Duration, slo time.Duration) int {
	for b := len(exec); b > 0; b-- {
		if o.Joint && exec[b-1].Seconds() <= slo.Seconds()*(1-o.Reserve) || o.Meets(Candidate{Config: cluster.Config{Batch: b}, Exec: exec[b-1]}, slo) {
			return b
		}
	}
	return 0
}

// SomeLoad is the load in requests per second for which plans size an instance of a function
// without load.
const SomeLoad = 1
