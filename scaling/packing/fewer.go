package packing

import "slices"

const (
	// fewNodes is the largest number of nodes from which fewer tries to save one: among
	// many nodes, one is little. fewerTries bounds the number of tries.
	fewNodes, fewerTries = 32, 3
)

// fewer looks for a solution with one node less, and then one less again, while the program does
// not rule it out. When nodes are filled one after the other, their rests may sum to a whole node.
// fewer removes the most expensive nodes first.
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

// nodesAreDear reports whether a node of a class costs more than any item.
func (p *Problem) nodesAreDear(class int) bool {
	return !slices.ContainsFunc(p.Items, func(it Item) bool { return it.Cost >= p.Classes[class].Cost })
}

// expense is the cost of one such node, with its instances.
func (p *Problem) expense(f Filled) float64 {
	cost := p.Classes[f.Class].Cost
	for _, u := range f.Uses {
		cost += float64(u.Count) * p.Items[u.Item].Cost
	}
	return cost
}
