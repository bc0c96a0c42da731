package joint

import (
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/scaling/packing"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// fewNodes is how many nodes a plan may need to be lean. Above, one node more
// would not be much to spare resources with.
const fewNodes = 8

// Lean says how a plan may be lean that is for what all asks for, which is called if
// that matters. A node's cores and GPU are best used together, but instances that use
// one of them alone, slowly, may take less in sum: on INFless' testbed two cores serve 4.2
// requests/s of ResNet-50, of β·cores + % of a GPU 1.2/4.2 = 0.29 for each; with half a
// GPU they serve 41/s, 51.2/41 = 1.25 for each. A node that holds nothing serves nobody,
// so such instances may have as many nodes as are not needed otherwise: those that stay
// empty are to hold all load once more, packed as well as can be, so that it may double
// before anything has to be exchanged. Of 16 nodes and a load that three hold at least,
// that is 13. Where there are few nodes it is one more than all load needs at least. As
// load grows, that room comes to its end and nodes are filled as well as can be.
//
// How many nodes are used already does not decide by itself: a load that has been
// higher, or came in steps, leaves its instances on more nodes than it needs, and there,
// too, an instance that takes as little as it can will do for what is missing.
func Lean(room *placing.Room, all func() *Problem) Thrift {
	used := 0
	for i := range room.Places {
		if room.Places[i].Used {
			used++
		}
	}
	least := all().least(room)
	if least > fewNodes {
		return Thrift{}
	}
	dense := int(math.Ceil(least))
	return Thrift{Lean: true, Nodes: max(dense+1, len(room.Places)-dense) - used}
}

// least is how many nodes all that is asked for would take, of empty ones, and
// instances cut so that they fill them.
func (p *Problem) least(room *placing.Room) float64 {
	if p.cores(room) > fewNodes {
		return math.Inf(1)
	}
	problem := packing.Problem{Demands: p.needs, Items: slices.Clone(p.items)}
	for i := range problem.Items {
		problem.Items[i].Cost = 0
	}
	zone, barred := p.zones(len(room.Places))
	var zones []int
	for i := range room.Places {
		total := room.Places[i].Total
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

// cores is how many nodes the demands would take at least, if there were only cores.
func (p *Problem) cores(room *placing.Room) float64 {
	least := make([]float64, len(p.needs))
	for i := range p.items {
		it := &p.items[i]
		k := p.of[i]
		if need := float64(it.Need.CPU) * p.needs[k] / it.Rate; least[k] == 0 || need < least[k] {
			least[k] = need
		}
	}
	sum, most := 0.0, 1
	for _, need := range least {
		sum += need
	}
	for i := range room.Places {
		most = max(most, room.Places[i].Total.CPU)
	}
	return sum / float64(most)
}
