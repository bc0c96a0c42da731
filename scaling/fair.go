package scaling

import (
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// fullNode is the part of the nodes' resources that plans can use: instances come in
// steps, so some of it stays unused.
const fullNode = 0.9

// divide shares the nodes' resources by weight, if jointly planned functions ask for more
// than there is and their weights differ. A function that asks for less than its share
// gets all of it, and the others share the rest. Load beyond a function's share is not
// planned for. So a heavy load cannot take the share of a light one, and none starves.
//
// For example two functions with weights 2 and 1 each need 2 cores, and there are 1.8.
// They get 1.2 and 0.6 cores, so 60 and 30 % of their loads are planned for. If the first
// needs only half a core, the other gets 1.3.
func (p *pass) divide() {
	var asking []*view
	var needs, weights []float64
	differ := false
	for _, v := range p.views {
		if !v.joint || v.retired || v.resting || v.steady <= 0 {
			continue
		}
		each := v.costPerRate()
		if each == 0 {
			continue
		}
		asking, needs, weights = append(asking, v), append(needs, each*max(v.demand, capacity.SomeLoad)), append(weights, v.weight())
		differ = differ || v.weight() != asking[0].weight()
	}
	if !differ {
		return
	}
	total := 0.0
	for _, n := range p.nodes {
		total += p.engine.settings.Weigh(cluster.Resources{CPU: n.Total.CPU - n.Others.CPU, GPU: n.Total.GPU - n.Others.GPU})
	}
	for i, part := range shares(needs, weights, fullNode*total) {
		if part < 1 {
			asking[i].cap(part)
		}
	}
}

// weight is the function's weight, 1 if it has none.
func (v *view) weight() float64 {
	if v.Weight > 0 {
		return v.Weight
	}
	return 1
}

// costPerRate is the cost of a request per second at the load, with the cheapest choice.
func (v *view) costPerRate() float64 {
	least := math.Inf(1)
	for _, c := range v.choices(v.demand, true) {
		least = min(least, c.Cost/c.Range.Up)
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// cap reduces the load that is planned for to that part.
func (v *view) cap(part float64) {
	v.steady, v.demand = v.steady*part, v.demand*part
	v.peak, v.top = max(v.demand, v.peak*part), max(v.demand, v.top*part)
	v.summed, v.peakSummed, v.atDemand, v.atPeak = false, false, v.atDemand[:0], v.atPeak[:0]
}

// shares returns the part of its need that each gets of total, by weight.
func shares(needs, weights []float64, total float64) []float64 {
	parts := make([]float64, len(needs))
	order := make([]int, len(needs))
	heavy := 0.0
	for i := range needs {
		order[i] = i
		heavy += weights[i]
	}
	// The least need for its weight comes first: the others share what it leaves.
	slices.SortStableFunc(order, func(a, b int) int {
		return int(math.Copysign(1, needs[a]/weights[a]-needs[b]/weights[b]))
	})
	for _, i := range order {
		share := max(0, total) * weights[i] / heavy
		parts[i] = min(1, share/needs[i])
		total -= parts[i] * needs[i]
		heavy -= weights[i]
	}
	return parts
}
