package packing

import "slices"

const (
	// fewNodes is how many nodes a solution may have for one less to be looked for,
	// fewerTries how many times that is done: where nodes are many, one of them is
	// little.
	fewNodes, fewerTries = 32, 3
)

// fewer looks for a solution with one node less, and one less again, as far as the
// program does not rule it out: what is left of nodes when one after the other has
// been filled is a node in sum, sooner or later. Nodes that are dearest go first.
func fewer(p Problem, s Solution) Solution {
	for range fewerTries {
		nodes, cost, dearest, used := 0, 0.0, -1, make([]int, len(p.Classes))
		for _, f := range s.Filled {
			nodes, cost, used[f.Class] = nodes+f.Count, cost+float64(f.Count)*p.expense(f), used[f.Class]+f.Count
			if dearest < 0 || p.Classes[f.Class].Cost > p.Classes[dearest].Cost {
				dearest = f.Class
			}
		}
		if dearest < 0 || nodes > fewNodes || cost-p.Classes[dearest].Cost < s.Cost || !p.nodesAreDear(dearest) {
			return s
		}
		less := p
		less.Classes = slices.Clone(p.Classes)
		less.Classes[dearest].Count = used[dearest] - 1
		other, err := pack(less, true)
		if err != nil {
			return s
		}
		spent := 0.0
		for _, f := range other.Filled {
			spent += float64(f.Count) * p.expense(f)
		}
		for k, d := range p.Demands {
			if other.Served[k] < min(d, s.Served[k])*(1-1e-9) {
				return s
			}
		}
		if spent >= cost {
			return s
		}
		s.Filled, s.Served = other.Filled, other.Served
	}
	return s
}

// nodesAreDear reports whether a class' nodes cost more than what is put on them.
func (p *Problem) nodesAreDear(class int) bool {
	return !slices.ContainsFunc(p.Items, func(it Item) bool { return it.Cost >= p.Classes[class].Cost })
}

// expense is what one node that is filled so costs, with what is on it.
func (p *Problem) expense(f Filled) float64 {
	cost := p.Classes[f.Class].Cost
	for _, u := range f.Uses {
		cost += float64(u.Count) * p.Items[u.Item].Cost
	}
	return cost
}
