package figure

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Plan sums up a scheduler's plan for all loads at once on an empty cluster (INFless §5.3).
type Plan struct {
	// Instances is the number of started instances.
	Instances int
	// Fragments is the part in % of the machines in use that no instance holds. Held is
	// the weighted sum of what instances hold. RPS is the placed load in requests/s.
	Fragments, Held, RPS float64
	// Took is the time in Scale.
	Took time.Duration
}

// begin is the time given to schedulers; no decision depends on it.
var begin = time.Unix(0, 0)

// Place lets a system's scheduler place rates, in requests/s for each function.
func Place(system systems.System, s sim.Setup, rates []float64) (Plan, error) {
	var functions []scaling.Function
	total := 0.0
	for k, f := range s.Functions {
		total += rates[k]
		functions = append(functions, scaling.Function{
			Name: f.Name, SLO: f.SLO, Queue: system.Queue(), Rate: rates[k],
			Configs: system.Candidates(f.Function, rates[k], f.Times), Min: f.MinInstances, Max: f.MaxInstances,
		})
	}
	nodes := slices.Clone(s.Nodes)
	for i := range nodes {
		nodes[i].Clear()
	}
	scaler := system.Scaler()
	started := time.Now()
	made := scaler.Scale(begin, functions, nodes)
	p := Plan{Took: time.Since(started), Instances: len(made.Start), RPS: total}
	for _, u := range made.Unplaced {
		p.RPS -= u.RPS
	}
	return p, p.measure(system.Name, s, made)
}

// measure fills Held and Fragments. It returns an error if the plan overfills a node.
func (p *Plan) measure(name string, s sim.Setup, made scaling.Plan) error {
	used := map[string]cluster.Resources{}
	for _, start := range made.Start {
		for node, part := range cluster.Over(start.Node, start.Nodes, start.Config.Resources) {
			used[node] = used[node].Add(part)
		}
		p.Held += weigh(start.Config.Resources, s.Beta)
	}
	machine := s.Machine
	if machine == nil {
		machine = func(node string) string { return node }
	}
	active := map[string]bool{}
	for _, n := range s.Nodes {
		if u, ok := used[n.Name]; ok {
			if !u.Fits(n.Total) {
				return fmt.Errorf("%s places %v on node %s, which has %v", name, u, n.Name, n.Total)
			}
			active[machine(n.Name)] = true
		}
	}
	all := 0.0
	for _, n := range s.Nodes {
		if active[machine(n.Name)] {
			all += weigh(n.Total, s.Beta)
		}
	}
	p.Fragments = 100 * (all - p.Held) / max(all, 1e-9)
	return nil
}

// fill searches the load, as a factor on rates, for which a system starts n instances. It
// returns the plan whose number is closest to n, of at most 20 plans, and its load. The
// number of instances is nearly proportional to the load, so each try corrects the previous
// one.
func fill(system systems.System, s sim.Setup, rates []float64, n int) (Plan, float64, error) {
	load := 1.0
	var best Plan
	at, low, high := 0.0, 0.0, math.Inf(1)
	for range 20 {
		p, err := Place(system, s, multiplied(rates, load))
		if err != nil {
			return Plan{}, 0, err
		}
		if at == 0 || abs(p.Instances-n) < abs(best.Instances-n) {
			best, at = p, load
		}
		if abs(p.Instances-n)*200 <= n {
			break
		}
		if p.Instances < n {
			low = max(low, load)
		} else {
			high = min(high, load)
		}
		next := load * float64(n) / float64(max(1, p.Instances))
		if next <= low || next >= high {
			if next = (low + high) / 2; math.IsInf(high, 1) {
				next = 2 * low
			}
		}
		load = next
	}
	return best, at, nil
}

// multiplied returns rates times load.
func multiplied(rates []float64, load float64) []float64 {
	out := slices.Clone(rates)
	for i := range out {
		out[i] *= load
	}
	return out
}

func abs(n int) int { return max(n, -n) }

// weigh returns the weight of resources: β·cores + % of a GPU (INFless §3.4). A beta of 0
// means [capacity.DefaultBeta].
func weigh(r cluster.Resources, beta float64) float64 {
	return cmp.Or(beta, capacity.DefaultBeta)*float64(r.CPU)/1000 + float64(r.GPU)
}
