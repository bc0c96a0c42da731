package joint

import (
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/scaling/packing"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// fewNodes is the maximum number of nodes that a lean plan may need. Above it, one more
// node would spare few resources.
const fewNodes = 8

// Lean decides whether a plan may be lean, and on how many new nodes. least is [Problem.Least] of
// all load.
//
// A node's cores and GPU are best used together. But instances that use one of them
// alone, slowly, may take less in sum. On INFless' testbed two cores serve 4.2 requests/s
// of ResNet-50, which costs 1.2/4.2 = 0.29 for each, in β·cores + % of a GPU. With half a
// GPU they serve 41/s, which costs 51.2/41 = 1.25 for each.
//
// An empty node serves nobody, so such instances may use all nodes that are not needed
// otherwise. The nodes that stay empty must hold all load once more, packed as well as
// possible. So load may double before anything must be exchanged. With 16 nodes and a
// load that three can hold, that leaves 13. With few nodes it is one more than the
// minimum for all load. As load grows, that room ends, and nodes are filled as well as
// possible.
//
// The number of nodes in use does not decide by itself. A load that was higher, or came in
// steps, leaves its instances on more nodes than it needs. There, too, the smallest
// sufficient instance serves what is missing.
func Lean(room *placing.Room, least float64) Thrift {
	if least > fewNodes {
		return Thrift{}
	}
	used := 0
	for i := range room.Places {
		if room.Places[i].Used {
			used++
		}
	}
	dense := int(math.Ceil(least))
	return Thrift{Lean: true, Nodes: max(dense+1, len(room.Places)-dense) - used}
}

// Least is how many empty nodes the whole problem would take, if instances could be
// divided to fill them, whatever the nodes hold now.
func (p *Problem) Least(room *placing.Room) float64 {
	problem := packing.Problem{Demands: p.needs, Items: slices.Clone(p.items), Work: p.Work}
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
	if err != nil || s.Rough || s.Theta < 1 {
		return math.Inf(1)
	}
	return s.Cost
}

// Few is how much CPU few nodes have, in millicores: a lean plan may need no more.
func Few(room *placing.Room) float64 {
	most := 1
	for i := range room.Places {
		most = max(most, room.Places[i].Total.CPU)
	}
	return fewNodes * float64(most)
}

// Cores is a lower bound for the CPU that the demand takes, in millicores.
func (d *Demand) Cores() float64 {
	least := math.Inf(1)
	for i := range d.Choices {
		c := &d.Choices[i]
		least = min(least, float64(c.Config.CPU)*d.Need/c.Range.Up)
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}
