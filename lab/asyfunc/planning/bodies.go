package planning

import "slices"

// Start is a body to start.
type Start struct{ Node, Cores int }

// Scale is Algorithm 1: bodies to start or to stop at a predicted rate in requests per second.
// Above α·R_max it starts bodies of the best config, each on the node with the most free cores;
// below β·R_max it stops the least efficient ones. R_max changes with each. A body goes only if
// the rest keeps the rate within α·R_max: of two equal ones at 0.55·R_max the printed rule would
// stop one, to start it again at the next period. One body stays. nodes are changed to what is
// left. short is true if no node has room for a body that is needed.
func (p *Planner) Scale(rate float64, bodies []*Body, nodes []Node) (starts []Start, stops []*Body, short bool) {
	s := &p.Settings
	most := p.Max(bodies)
	if rate > s.Alpha*most || len(bodies) == 0 {
		starts, short = p.grow(rate, most, len(bodies) == 0, nodes)
		return starts, nil, short
	}
	if rate >= s.Beta*most {
		return nil, nil, false
	}
	for _, b := range byID(bodies, p.bodyEfficiency) {
		if rate >= s.Beta*most || len(stops) == len(bodies)-1 {
			break
		}
		if rest := most - p.Rate(b); rate <= s.Alpha*rest {
			stops, most = append(stops, b), rest
		}
	}
	return nil, stops, false
}

// grow starts bodies until the rate is within α·R_max, at least one if none is there.
func (p *Planner) grow(rate, most float64, first bool, nodes []Node) (starts []Start, short bool) {
	best, _, ok := p.Config(rate, p.Settings.MaxCores)
	if !ok {
		best = p.Settings.MaxCores
	}
	for first || rate > p.Settings.Alpha*most {
		first = false
		memory, _ := p.Memory(p.Batch(p.Times(best)))
		node := roomiest(nodes, memory)
		if node < 0 {
			return starts, true
		}
		cores := best
		if free := nodes[node].Cores; free < cores {
			if cores, _, ok = p.Config(rate, free); !ok {
				return starts, true
			}
		}
		gain := p.rate(p.Times(cores))
		if gain == 0 && len(starts) > 0 {
			return starts, true
		}
		starts = append(starts, Start{node, cores})
		nodes[node].Cores -= cores
		nodes[node].Memory -= memory
		most += gain
	}
	return starts, false
}

// Config is c_best: the number of cores, up to a bound, with the greatest η of any batch within
// the SLO (Algorithm 1, lines 3 to 15), and that batch. The first request of a batch waits
// (b−1)/R for the last one. ok is false if no config is within the SLO.
func (p *Planner) Config(rate float64, bound int) (cores, rows int, ok bool) {
	best := 0.0
	for c := 1; c <= min(bound, p.Settings.MaxCores); c++ {
		for b, t := range p.Times(c) {
			wait := 0.0
			if b > 0 && rate > 0 {
				wait = 1000 * float64(b) / rate
			} else if b > 0 {
				break // Nobody else comes.
			}
			if wait+t > p.Settings.SLO {
				continue
			}
			memory, _ := p.Memory(b + 1)
			if eta := p.efficiency(b+1, c, memory, t); eta > best*(1+1e-9) {
				best, cores, rows, ok = eta, c, b+1, true
			}
		}
	}
	return cores, rows, ok
}

// bodyEfficiency is η_max of a body: of any batch within the SLO.
func (p *Planner) bodyEfficiency(b *Body) float64 {
	times := slices.Clone(p.Times(b.Cores))
	cores, memory := b.Cores, int64(0)
	if b.Shadow != nil {
		times, cores, memory = b.Shadow.Times(), cores+b.Shadow.Cores, b.Shadow.Memory
	}
	best := 0.0
	for i, t := range times {
		if t > p.Settings.SLO {
			continue
		}
		own, _ := p.Memory(i + 1)
		best = max(best, p.efficiency(i+1, cores, own+memory, t))
	}
	return best
}
