package capacity

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Demand is what is asked to be served and placed.
type Demand struct {
	// RPS is R_k, the residual load in requests per second.
	RPS float64
	// SLO is t_slo; 0 means none, and every config then meets it.
	SLO time.Duration
	// Percentile is how many % of the requests are to be within the SLO; 0 means
	// [staffing.StaffingPercentile]. Only [Options.Joint] plans for it.
	Percentile float64
	Configs    []Candidate
	Queue      Queue
	// Limit is the most instances that may be placed; 0 means no limit. With
	// a limit, an instance that takes its part of the load is preferred to a
	// more efficient one that is too small.
	Limit int
	// Nodes are the names of those that instances may be placed on; nil means any.
	Nodes []string
	// Load is all of the function's, of which RPS is a part.
	Load float64
	// Crowded: there is no room for all load. Only the served load counts
	// then, and no room is kept for chance.
	Crowded bool
}

// Choice is a candidate that meets the SLO.
type Choice struct {
	Candidate
	// Range is what an instance with it serves.
	Range Range
	// Cost is βc + g.
	Cost float64
}

// Choices are lines 16–27 (AvailableConfig) but for R_k > r_low, which changes
// from instance to instance: the candidates that meet the SLO, the largest
// batch first. Candidates that cost nothing or have no rate (Paper above one
// second) are left out: Algorithm 1 would place them for ever.
func (o Options) Choices(d Demand) []Choice {
	var cs []Choice
	if o.Jointly(d.Queue) {
		cs = o.jointChoices(d)
	}
	if len(cs) == 0 {
		for _, c := range d.Configs {
			if o.Meets(c, d.SLO) {
				cs = o.choice(cs, c, o.Bounds(c.Config.Batch, c.Exec, d.SLO, d.Queue))
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

// choice adds a candidate that can be placed.
func (o Options) choice(cs []Choice, c Candidate, bounds Range) []Choice {
	r, cost := c.Config.Resources, o.Weigh(c.Config.Resources)
	if r.CPU < 0 || r.GPU < 0 || r.Memory < 0 || r.GPUMemory < 0 || !(cost > 0) || !(bounds.Up > 0) {
		return cs
	}
	return append(cs, Choice{c, bounds, cost})
}

// Meets is Eq. 3 and 4 in the form of lines 21 and 25.
func (o Options) Meets(c Candidate, slo time.Duration) bool {
	if slo <= 0 {
		return true
	}
	if c.Config.Batch > 1 && o.HalfSLO {
		return c.Exec <= slo-c.Exec
	}
	return c.Exec <= slo
}

// Negligible is the part of a load that is rounding, not requests.
const Negligible = 1e-9

// Fastest is the candidate with the shortest time; of those, the one with the
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

// Raise picks the choice within so much CPU that takes residual more than up and
// needs the least CPU, or else the one that takes most.
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

// InPlace are the choices that differ from what an instance has in CPU, in more of it or in less, with
// batches that are no larger than the instance can take, and feed as many threads: the
// others could not be had while an instance runs. For example an instance that can take 32
// at a time, of which 1 is in time at 250m, becomes ⟨8,1000m⟩.
func InPlace(choices []Choice, has Candidate, largest int, more bool) []Choice {
	config := has.Config
	var all []Choice
	for _, c := range choices {
		same := c.Config
		same.CPU = config.CPU
		if same.Batch <= largest {
			same.Batch = config.Batch
		}
		if c.Artefact == has.Artefact && same == config && c.Config.CPU != config.CPU && c.Config.CPU > config.CPU == more && c.Config.Threads() == config.Threads() {
			all = append(all, c)
		}
	}
	return all
}

// Usable is the largest batch that an instance may take under slo, Eq. 3 and 4,
// if a batch of b takes exec[b-1]; 0 if not even one request can be in time.
// Among many that are planned jointly it may take all of the SLO but the reserve.
func (o Options) Usable(exec []time.Duration, slo time.Duration) int {
	for b := len(exec); b > 0; b-- {
		if o.Joint && exec[b-1].Seconds() <= slo.Seconds()*(1-o.Reserve) || o.Meets(Candidate{Config: cluster.Config{Batch: b}, Exec: exec[b-1]}, slo) {
			return b
		}
	}
	return 0
}

// SomeLoad is the load in requests per second for which an instance is sized
// that has no load.
const SomeLoad = 1
