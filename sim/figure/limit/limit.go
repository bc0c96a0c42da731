// Package limit says what no policy can exceed on given machines.
package limit

import (
	"fmt"
	"math"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/packing"
	"github.com/faas-infer/faas-infer/sim"
)

// Attained is the part of the requests that is to be answered within the SLO for a
// load to count as borne.
const Attained = 0.99

// Bound is a factor on the rates above which no policy, whatever it does, answers
// 99 % of all functions' requests within their SLO on the setup's nodes.
//
// A batch of b requests on a config takes a time of mean m whose logarithm has a
// standard deviation of σ. It ends within the SLO, less the way to the instance and
// back, with a probability p of Φ(ln((SLO − overhead)/median)/σ) at most, which is
// that of requests that did not wait. So an instance answers at most b·p/m requests
// per second in time, for its best b, and all together must answer 99 % of what
// comes. The rest is packing.Bound, which cuts instances into pieces.
func Bound(s sim.Setup, rates []float64) (float64, error) {
	p := packing.Problem{Classes: classes(s.Nodes)}
	for k, f := range s.Functions {
		p.Demands = append(p.Demands, Attained*rates[k])
		best := map[cluster.Resources]float64{}
		var order []cluster.Resources
		for _, c := range f.Times.Configs() {
			if _, known := best[c.Resources]; !known {
				order = append(order, c.Resources)
			}
			for b := range c.Batch {
				if f.MaxBatch > 0 && b >= f.MaxBatch {
					break
				}
				if mean, ok := f.Times.Exec(c, b+1); ok && mean > 0 {
					rate := float64(b+1) / mean.Seconds() * inTime(mean, f.Times.Spread(), f.SLO-s.Overhead)
					best[c.Resources] = max(best[c.Resources], rate)
				}
			}
		}
		for _, need := range order {
			if rate := best[need]; rate > 0 {
				p.Items = append(p.Items, packing.Item{Demand: k, Rate: rate, Need: need})
			}
		}
	}
	factor, err := packing.Bound(p)
	if err != nil {
		return 0, fmt.Errorf("the limit of what any policy can do: %w", err)
	}
	return factor, nil
}

// inTime is the probability that an execution with this mean ends within limit,
// where the logarithm of its time is normal with a standard deviation of spread:
// its median is mean·exp(−spread²/2).
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

// classes groups nodes that are alike, in the order of the first of each.
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

// Rates are the functions' mean rates in requests per second over what is
// measured of a setup: of each arrival process that knows its rate. It uses up the
// setup's processes.
func Rates(s sim.Setup) ([]float64, error) {
	const looks = 2000
	rates := make([]float64, len(s.Functions))
	for k, f := range s.Functions {
		r, ok := f.Arrivals.(sim.Rate)
		if !ok {
			return nil, fmt.Errorf("function %s: its arrivals do not tell their rate", f.Name)
		}
		span := s.Duration - s.Warmup
		for i := range looks {
			rates[k] += r.Rate(s.Warmup+time.Duration((float64(i)+0.5)/looks*float64(span))) / looks
		}
		if !(rates[k] > 0) {
			return nil, fmt.Errorf("function %s has no requests between %v and %v", f.Name, s.Warmup, s.Duration)
		}
	}
	return rates, nil
}
