package systems

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/batching/arrival"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/otp"
)

// Function is what a system must know of a function to configure its instances.
type Function struct {
	Name string
	// SLO is t_slo; 0 means none.
	SLO time.Duration
	// Percentile is how many % of the requests are to be answered within the
	// SLO; 0 means [DefaultPercentile].
	Percentile float64
	// MaxBatch bounds every batch; 0 is no bound.
	MaxBatch int
	// Budget is the most that a request may cost on average, 0 is no bound; Price
	// what resources cost, nil is βc + g. Only [Batch] knows of budgets.
	Budget float64
	Price  otp.Pricing
	// Arrivals is the process that was fitted to the function's requests; nil is
	// Poisson. Only [Batch] reads it, and its [Tuner] sets it.
	Arrivals *arrival.MAP
}

// price says what resources cost.
func (f Function) price() otp.Pricing {
	if f.Price == nil {
		return own
	}
	return f.Price
}

// DefaultPercentile is the percentile of functions that name none.
const DefaultPercentile = 99

// quantile is the percentile as a part of one, within what a spread can say.
func (f Function) quantile() float64 {
	p := f.Percentile
	if !(p > 0) {
		p = DefaultPercentile
	}
	return min(max(p/100, 0.5), 0.9999)
}

// Times are a model's execution times.
type Times interface {
	// Configs lists the configs that an instance can have, each with the
	// largest batch of which there is a time.
	Configs() []cluster.Config
	// Exec is the mean time of a batch of b on the resources of c; false
	// where nothing is known of it.
	Exec(c cluster.Config, b int) (mean time.Duration, ok bool)
	// Spread is σ of the logarithm of a time around its mean.
	Spread() float64
}

// Candidates lists the configs that the system considers for a function whose
// load is rate requests per second, with the times that it predicts, given the
// mean ones, and the timeouts that it sets. The list is the same for the same
// arguments. A driver that asks again and again as the load changes keeps a
// [Tuner].
//
// Where by its predictions nothing can meet the objective, requests are not refused
// for that: the config whose single requests are fastest is left, as if it met it.
func (s System) Candidates(f Function, rate float64, t Times) []capacity.Candidate {
	all := s.choose(s, f, rate, t)
	meets := func(c capacity.Candidate) bool { return f.SLO <= 0 || c.Exec <= f.SLO }
	if len(all) == 0 || slices.ContainsFunc(all, meets) {
		return all
	}
	return []capacity.Candidate{tolerated(slices.MinFunc(all, func(a, b capacity.Candidate) int {
		return cmp.Or(cmp.Compare(a.Config.Batch, b.Config.Batch), cmp.Compare(a.Exec, b.Exec), cmp.Compare(a.Config.GPU, b.Config.GPU), cmp.Compare(a.Config.CPU, b.Config.CPU))
	}), f.SLO)}
}

// tolerated is a candidate that is used even if it cannot meet the objective.
func tolerated(c capacity.Candidate, slo time.Duration) capacity.Candidate {
	if slo > 0 {
		c.Exec = min(c.Exec, slo)
	}
	return c
}

// Table lists the times that the system predicts of batches of 1, 2, … c.Batch on
// c: what [batching.Instance.Exec] is to be. It never decreases, and takes the
// next larger batch's time where there is none. Where not even one request is
// predicted to be in time, one that has waited for no more than half the objective
// is still worth a try.
func (s System) Table(f Function, c cluster.Config, t Times) []time.Duration {
	return s.table(f, c, t, s.factor(f, t))
}

// table is Table with mean times multiplied by a factor.
func (s System) table(f Function, c cluster.Config, t Times, factor float64) []time.Duration {
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

// factor is what the system multiplies mean times by.
func (s System) factor(f Function, t Times) float64 {
	if s.margin != nil {
		return *s.margin
	}
	return Tail(f.quantile(), t.Spread())
}

// Tail is how much longer than their mean so much of all executions take at
// most, 0.99 for the 99th percentile, if the logarithm of a time has a standard
// deviation of σ = spread: exp(z·σ), and never less than 1. At σ = 0.1 it is
// exp(2.326·0.1) = 1.26.
func Tail(quantile, spread float64) float64 {
	z := math.Sqrt2 * math.Erfinv(2*quantile-1)
	return max(1, math.Exp(z*max(0, spread)))
}

// mean is the time that says how much an instance carries. A system with a margin
// counts with it there, too.
func (s System) mean(t time.Duration) time.Duration {
	if s.margin != nil {
		return scale(t, *s.margin)
	}
	return t
}

func scale(t time.Duration, factor float64) time.Duration {
	return time.Duration(math.Ceil(float64(t) * factor))
}

// chooser lists what a system considers.
type chooser func(s System, f Function, rate float64, t Times) []capacity.Candidate

// predicted lists every config with the system's times, as far as MaxBatch
// allows: the powers of two up to the largest batch, and that itself (§3.3).
func (s System) predicted(f Function, t Times) []capacity.Candidate {
	factor := s.factor(f, t)
	var all []capacity.Candidate
	for _, c := range t.Configs() {
		if f.MaxBatch > 0 && c.Batch > f.MaxBatch {
			continue
		}
		if mean, ok := t.Exec(c, c.Batch); ok && mean > 0 {
			all = append(all, capacity.Candidate{Config: c, Exec: scale(mean, factor), Mean: s.mean(mean)})
		}
	}
	return all
}

// every considers all.
func every(s System, f Function, _ float64, t Times) []capacity.Candidate { return s.predicted(f, t) }

// fitting considers those of which a batch can fill for as long as one is executed
// (Eq. 4) and still be answered in time: without what an answer takes to come back,
// a batch at half the objective would leave before it is full, and the instance
// carry less than its r_up.
func fitting(s System, f Function, _ float64, t Times) []capacity.Candidate {
	left := f.SLO - batching.Travel(f.SLO)
	return slices.DeleteFunc(s.predicted(f, t), func(c capacity.Candidate) bool {
		return f.SLO > 0 && c.Config.Batch > 1 && 2*c.Exec > left
	})
}

// single considers batches of one only (BB of INFless §5.2).
func single(s System, f Function, _ float64, t Times) []capacity.Candidate {
	return slices.DeleteFunc(s.predicted(f, t), func(c capacity.Candidate) bool { return c.Config.Batch != 1 })
}

// strongest considers of each batch size only the config with the highest
// throughput, whatever it costs and whether it fits what is free (RS of INFless
// §5.2).
func strongest(s System, f Function, rate float64, t Times) []capacity.Candidate {
	all := fitting(s, f, rate, t)
	slices.SortFunc(all, func(a, b capacity.Candidate) int {
		return cmp.Or(cmp.Compare(b.Config.Batch, a.Config.Batch), cmp.Compare(a.Exec, b.Exec), cmp.Compare(a.Config.GPU, b.Config.GPU), cmp.Compare(a.Config.CPU, b.Config.CPU))
	})
	return slices.CompactFunc(all, func(a, b capacity.Candidate) bool { return a.Config.Batch == b.Config.Batch })
}
