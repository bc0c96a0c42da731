package systems

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// Function is what a system must know of a function to configure its instances.
type Function struct {
	Name string
	// SLO is t_slo; 0 means none.
	SLO time.Duration
	// Percentile is the part in % of the requests that must be answered within the SLO;
	// 0 means [DefaultPercentile].
	Percentile float64
	// MaxBatch bounds every batch; 0 means no bound.
	MaxBatch int
	// Price is the price of resources; nil means βc + g. Stated has the values of annotations that a
	// paper adds. Only a [Tuner] reads them.
	Price  Pricing
	Stated string
	// Variants are what its instances may load. If it is nil, they all load the same, whose
	// times the methods of [System] get.
	Variants *Variants
}

// Variants are what a function's instances may load.
type Variants struct {
	All []Variant
	// Pinned has, by system, what the developer has chosen for systems that cannot choose.
	Pinned map[string]Pin
}

// Variant is one thing that a function's instances may load.
type Variant struct {
	// Name is the artefact's name in candidates and plans.
	Name  string
	Times Times
	// Loading is how long an instance takes to load it.
	Loading time.Duration
	// Accuracy is in percent.
	Accuracy float64
}

// Pin is a developer's choice for all instances of a function.
type Pin struct {
	// Variant is a variant's name. Instances is their number, 0 for any.
	Variant   string
	Instances int
}

// Price is the price of execution on some resources.
type Price struct {
	// PerSecond is the price of a second of execution, PerCall that of each batch.
	PerSecond, PerCall float64
}

// Pricing returns the price of resources.
type Pricing interface {
	// Price is the price of an instance with these resources.
	Price(r cluster.Resources) Price
}

// DefaultPercentile is the percentile of functions that name none.
const DefaultPercentile = 99

// Quantile is the percentile as a part of one, limited to the range in which a spread is
// meaningful.
func (f Function) Quantile() float64 {
	p := f.Percentile
	if !(p > 0) {
		p = DefaultPercentile
	}
	return min(max(p/100, 0.5), 0.9999)
}

// Times are a model's execution times.
type Times interface {
	// Configs lists the configs that an instance can have, each with the largest batch
	// for which there is a time.
	Configs() []cluster.Config
	// Exec is the mean time of a batch of b on the resources of c. ok is false if there
	// is none.
	Exec(c cluster.Config, b int) (mean time.Duration, ok bool)
	// Spread is σ of the logarithm of a time around its mean.
	Spread() float64
}

// Candidates lists the configs that the system considers for a function whose load is rate
// requests per second. Each has the times that the system predicts from the mean ones t,
// and the timeout that it sets. Equal arguments give equal lists. A driver that calls it
// repeatedly as the load changes should use the system's [Tuner] if it has one.
//
// If no config meets the objective by these predictions, requests are not refused. The
// config with the fastest single requests is the only one then, as if it met the objective.
func (s System) Candidates(f Function, rate float64, t Times) []capacity.Candidate {
	all := s.rules.Choose(s, f, rate, t)
	meets := func(c capacity.Candidate) bool { return f.SLO <= 0 || c.Exec <= f.SLO }
	if len(all) == 0 || slices.ContainsFunc(all, meets) {
		return all
	}
	return []capacity.Candidate{Tolerated(slices.MinFunc(all, func(a, b capacity.Candidate) int {
		return cmp.Or(cmp.Compare(a.Config.Batch, b.Config.Batch), cmp.Compare(a.Exec, b.Exec), cmp.Compare(a.Config.GPU, b.Config.GPU), cmp.Compare(a.Config.CPU, b.Config.CPU))
	}), f.SLO)}
}

// Tolerated returns the candidate as if it met the objective, for use even if it does not.
func Tolerated(c capacity.Candidate, slo time.Duration) capacity.Candidate {
	if slo > 0 {
		c.Exec = min(c.Exec, slo)
	}
	return c
}

// Table lists the times that the system predicts for batches of 1, 2, … c.Batch on c, as
// [batching.Instance.Exec] needs them. The times never decrease. A missing time is that of
// the next larger batch. If not even one request is predicted to be in time, the table
// gives it half of the objective, so a request that has waited less is still tried.
func (s System) Table(f Function, c cluster.Config, t Times) []time.Duration {
	if s.rules.Believes != nil {
		t = s.rules.Believes(t)
	}
	return TableOf(f, c, t, s.Factor(f, t))
}

// TableOf is [System.Table] with mean times multiplied by a factor.
func TableOf(f Function, c cluster.Config, t Times, factor float64) []time.Duration {
	table := make([]time.Duration, c.Batch)
	last := time.Duration(0)
	for b := c.Batch; b > 0; b-- {
		if mean, ok := t.Exec(c, b); ok {
			last = scale(mean, factor)
		}
		table[b-1] = last
	}
	for b := range table[:max(0, len(table)-1)] {
		table[b+1] = max(table[b+1], table[b])
	}
	if len(table) > 0 && f.SLO > 0 && table[0] > f.SLO {
		table[0] = f.SLO / 2
	}
	return table
}

// Factor is the factor by which the system multiplies mean times.
func (s System) Factor(f Function, t Times) float64 {
	if s.rules.Margin > 0 {
		return s.rules.Margin
	}
	return Tail(f.Quantile(), t.Spread())
}

// Tail is the ratio of a quantile of execution times to their mean, 0.99 for the 99th
// percentile, if the logarithm of a time has a standard deviation of σ = spread. It is
// exp(z·σ), and at least 1. At σ = 0.1 it is exp(2.326·0.1) = 1.26.
func Tail(quantile, spread float64) float64 {
	z := math.Sqrt2 * math.Erfinv(2*quantile-1)
	return max(1, math.Exp(z*max(0, spread)))
}

// mean is the time from which an instance's capacity follows. A system with a margin
// multiplies it by the margin, too.
func (s System) mean(t time.Duration) time.Duration {
	if s.rules.Margin > 0 {
		return scale(t, s.rules.Margin)
	}
	return t
}

func scale(t time.Duration, factor float64) time.Duration {
	return time.Duration(math.Ceil(float64(t) * factor))
}

// Chooser lists the candidates that a system considers.
type Chooser func(s System, f Function, rate float64, t Times) []capacity.Candidate

// Predicted lists every config with the system's times, within MaxBatch: the powers of two
// up to the largest batch, and that batch itself (§3.3).
func (s System) Predicted(f Function, t Times) []capacity.Candidate {
	if f.Variants == nil {
		return s.predictedOf(f, Variant{Times: t})
	}
	var all []capacity.Candidate
	for _, v := range f.Variants.All {
		all = append(all, s.predictedOf(f, v)...)
	}
	return all
}

// predictedOf is Predicted for one variant.
func (s System) predictedOf(f Function, v Variant) []capacity.Candidate {
	t := v.Times
	factor := s.Factor(f, t)
	var all []capacity.Candidate
	for _, c := range t.Configs() {
		if f.MaxBatch > 0 && c.Batch > f.MaxBatch {
			continue
		}
		if mean, ok := t.Exec(c, c.Batch); ok && mean > 0 {
			all = append(all, capacity.Candidate{Artefact: v.Name, Accuracy: v.Accuracy, Config: c, Exec: scale(mean, factor), Mean: s.mean(mean), Loading: v.Loading})
		}
	}
	return all
}

// every considers all configs.
func every(s System, f Function, _ float64, t Times) []capacity.Candidate { return s.Predicted(f, t) }

// fitting considers the configs whose batch can fill in time, less the answer's way back.
func fitting(s System, f Function, _ float64, t Times) []capacity.Candidate {
	return Fitting(s.Predicted(f, t), f.SLO-batching.Travel(f.SLO))
}

// Fitting removes the candidates whose batch cannot fill for as long as one executes (Eq. 4) and
// still be answered within left. Otherwise a batch at half the objective would leave before it is
// full, and the instance would carry less than its r_up. Without an objective left is 0, and all fit.
func Fitting(all []capacity.Candidate, left time.Duration) []capacity.Candidate {
	return slices.DeleteFunc(all, func(c capacity.Candidate) bool { return left > 0 && c.Config.Batch > 1 && 2*c.Exec > left })
}
