package scaling

import (
	"math"

	"github.com/faas-infer/faas-infer/scaling/packing"
)

// fewNodes is how many nodes a plan may need to be lean. Above, one node more
// would not be much to spare resources with.
const fewNodes = 8

// lean says how a plan for these views may be lean. A node's cores and GPU are
// best used together, but instances that use one of them alone, slowly, may take
// less in sum. Where little is asked for there is room for them, on one node more
// than all load needs at least. As load grows, that room comes to its end and
// nodes are filled as well as can be.
func (p *pass) lean(views []*view) thrift {
	used := 0
	for i := range p.space().places {
		if p.space().places[i].used {
			used++
		}
	}
	if used > fewNodes+1 {
		return thrift{}
	}
	least := p.least(views)
	if least > fewNodes {
		return thrift{}
	}
	return thrift{lean: true, nodes: int(math.Ceil(least)) + 1 - used}
}

// least is how many nodes all that the views are asked for would take, of empty
// ones, and instances cut so that they fill them.
func (p *pass) least(views []*view) float64 {
	t := p.ask(views, thrift{}, func(v *view) float64 {
		if !p.allowed(v).any() {
			return 0
		}
		return max(v.demand, someLoad)
	})
	if p.cores(t) > fewNodes {
		return math.Inf(1)
	}
	problem := packing.Problem{Demands: t.demands, Items: t.items}
	for i := range problem.Items {
		problem.Items[i].Cost = 0
	}
	zone, barred := t.zones(len(p.space().places))
	var zones []int
	for i := range p.space().places {
		total := p.space().places[i].total
		at := -1
		for n, c := range problem.Classes {
			if c.Free == total && zones[n] == zone[i] {
				at = n
			}
		}
		if at < 0 {
			if at = len(problem.Classes); at >= maxClasses {
				return math.Inf(1)
			}
			problem.Classes = append(problem.Classes, packing.Class{Free: total, Cost: 1, Barred: barred[zone[i]]})
			zones = append(zones, zone[i])
		}
		problem.Classes[at].Count++
	}
	s, err := packing.Relax(problem)
	if err != nil || s.Theta < 1 {
		return math.Inf(1)
	}
	return s.Cost
}

// cores is how many nodes a demand would take at least, if there were only cores.
func (p *pass) cores(t *together) float64 {
	least := make([]float64, len(t.demands))
	for i := range t.items {
		it := &t.items[i]
		if need := float64(it.Need.CPU) * t.demands[it.Demand] / it.Rate; least[it.Demand] == 0 || need < least[it.Demand] {
			least[it.Demand] = need
		}
	}
	sum, most := 0.0, 1
	for _, need := range least {
		sum += need
	}
	for i := range p.space().places {
		most = max(most, p.space().places[i].total.CPU)
	}
	return sum / float64(most)
}
