package figure

import (
	"fmt"
	"math"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/packing"
)

// Attained is the part of each function's requests that must be answered within the SLO
// for a system to bear a load.
const Attained = 0.99

// penalties are the tried values of μ in [limitAny]; the lowest bound counts.
var penalties = []float64{0, 1, 2, 4, 8, 16, 32}

// limitAny returns a factor on rates, which are in requests/s for each function. Above it,
// no policy can answer 99 % of all functions' requests within their SLO on the setup's
// nodes.
//
// A batch of b requests on a config takes a time of mean m whose logarithm has a
// standard deviation of σ. It ends within the SLO, less the way to the instance and
// back, with a probability p of at most Φ(ln((SLO − overhead)/median)/σ). That is the
// probability for requests that did not wait. So an instance answers at most b·p/m
// requests/s in time, and at least b·(1−p)/m late. Of a load D, all instances must
// answer 0.99·D in time, and may answer 0.01·D late. For any μ ≥ 0 it follows that
//
//	Σ b/m·(p − μ·(1−p)) ≥ (0.99 − 0.01·μ)·D
//
// This has one value for each instance, as packing.Bound needs it; packing.Bound may cut
// instances into pieces. Each μ gives a bound. With μ = 0, late requests do not count
// against a config. With a high μ, configs with many late requests do not pay, and less of
// D must be reached: at μ = 8, configs with p < 8/9 do not pay, for 8 % less of D.
func limitAny(s sim.Setup, rates []float64) (float64, error) {
	lowest := math.Inf(1)
	for _, penalty := range penalties {
		p := packing.Problem{Classes: classes(s.Nodes)}
		for k, f := range s.Functions {
			p.Demands = append(p.Demands, (Attained-penalty*(1-Attained))*rates[k])
			p.Items = append(p.Items, items(k, f.Times.Configs(), func(c cluster.Config) float64 {
				best := 0.0
				for b := 1; b <= c.Batch && (f.MaxBatch <= 0 || b <= f.MaxBatch); b++ {
					if mean, ok := f.Times.Exec(c, b); ok && mean > 0 {
						in := inTime(mean, f.Times.Spread(), f.SLO-s.Overhead)
						best = max(best, float64(b)/mean.Seconds()*(in-penalty*(1-in)))
					}
				}
				return best
			})...)
		}
		factor, err := packing.Bound(p)
		if err != nil {
			return 0, fmt.Errorf("the limit of any policy: %w", err)
		}
		lowest = min(lowest, factor)
	}
	return lowest, nil
}

// limitOwn returns a factor on rates. Above it, instances of the configs that the setup's
// system considers cannot execute all requests, wherever they are placed. These configs are
// predicted to meet the SLO, or half of it (INFless Eq. 3 and 4), or the SLO less what the
// system reserves. They count with their true times and full batches.
func limitOwn(s sim.Setup, rates []float64) (float64, error) {
	settings := s.System.Settings()
	p := packing.Problem{Demands: rates, Classes: classes(s.Nodes)}
	for k, f := range s.Functions {
		var configs []cluster.Config
		for _, c := range s.System.Candidates(f.Function, rates[k], f.Times) {
			half := settings.Halves(c.Config.Batch)
			if settings.Objective(c.Exec) <= f.SLO && (!half || 2*c.Exec <= f.SLO) {
				configs = append(configs, c.Config)
			}
		}
		p.Items = append(p.Items, items(k, configs, func(c cluster.Config) float64 {
			mean, ok := f.Times.Exec(c, c.Batch)
			if !ok || mean <= 0 {
				return 0
			}
			return float64(c.Batch) / mean.Seconds()
		})...)
	}
	factor, err := packing.Bound(p)
	if err != nil {
		return 0, fmt.Errorf("the limit of the configs that %s considers: %w", s.System.Name, err)
	}
	return factor, nil
}

// items returns demand k's items: for each share of resources, its highest rate. Shares
// that serve no request are left out.
func items(k int, configs []cluster.Config, serves func(cluster.Config) float64) []packing.Item {
	var all []packing.Item
	at := map[cluster.Resources]int{}
	for _, c := range configs {
		rate := serves(c)
		if !(rate > 0) {
			continue
		}
		i, known := at[c.Resources]
		if !known {
			i = len(all)
			at[c.Resources] = i
			all = append(all, packing.Item{Demands: []int{k}, Need: c.Resources})
		}
		all[i].Rate = max(all[i].Rate, rate)
	}
	return all
}

// inTime returns the probability that an execution with this mean ends within limit. The
// logarithm of its time is normal with a standard deviation of spread, so its median is
// mean·exp(−spread²/2).
func inTime(mean time.Duration, spread float64, limit time.Duration) float64 {
	if limit <= 0 {
		return 0
	}
	ratio := math.Log(float64(limit)/float64(mean)) + spread*spread/2
	if spread <= 0 {
		if ratio >= 0 {
			return 1
		}
		return 0
	}
	return math.Erfc(-ratio/spread/math.Sqrt2) / 2
}

// classes groups equal nodes, in the order of the first of each.
func classes(nodes []cluster.Node) []packing.Class {
	var all []packing.Class
	at := map[cluster.Resources]int{}
	for _, n := range nodes {
		i, ok := at[n.Total]
		if !ok {
			i = len(all)
			at[n.Total] = i
			all = append(all, packing.Class{Free: n.Total})
		}
		all[i].Count++
	}
	return all
}

// limitRates returns the functions' mean rates in requests/s over the measured part of a
// setup. Each arrival process must have a rate. The setup's processes cannot be used
// afterwards.
func limitRates(s sim.Setup) ([]float64, error) {
	const samples = 2000
	rates := make([]float64, len(s.Functions))
	for k, f := range s.Functions {
		r, ok := f.Arrivals.(sim.Rate)
		if !ok {
			return nil, fmt.Errorf("function %s: its arrivals have no rate", f.Name)
		}
		span := s.Duration - s.Warmup
		for i := range samples {
			rates[k] += r.Rate(s.Warmup+time.Duration((float64(i)+0.5)/samples*float64(span))) / samples
		}
		if !(rates[k] > 0) {
			return nil, fmt.Errorf("function %s has no requests between %v and %v", f.Name, s.Warmup, s.Duration)
		}
	}
	return rates, nil
}
