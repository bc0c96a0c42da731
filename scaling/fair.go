package scaling

import (
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// fullNode is the part of the nodes' resources that plans can use: instances come in
// steps, so that something is left over.
const fullNode = 0.9

// divide shares what there is by weight where functions that are planned jointly ask for
// more, if their weights differ. A function that asks for less than its share gets what it
// asks for, and the others share the rest; what one asks for beyond its share is not
// planned for. So a heavy load cannot take what a light one weighs, and none starves.
//
// For example two functions that each need 2 cores of 1.8, with weights 2 and 1: they may
// have 1.2 and 0.6 cores, so 60 and 30 % of their loads are planned for. If the first needs
// only half a core, the other has 1.3.
func (p *pass) divide() {
	var asking []*view
	var needs, weights []float64
	differ := false
	for _, v := range p.views {
		if !v.joint || v.retired || v.resting || v.steady <= 0 {
			continue
		}
		each := v.dearness()
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

// weight is the function's, 1 if it has none.
func (v *view) weight() float64 {
	if v.Weight > 0 {
		return v.Weight
	}
	return 1
}

// dearness is what a request per second costs at the load, by the cheapest choice.
func (v *view) dearness() float64 {
	least := math.Inf(1)
	for _, c := range v.choices(v.demand, true) {
		least = min(least, c.Cost/c.Range.Up)
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}

// cap has no more than that part of the load planned for.
func (v *view) cap(part float64) {
	v.steady, v.demand = v.steady*part, v.demand*part
	v.peak = max(v.demand, v.peak*part)
	v.summed, v.crested, v.now, v.then = false, false, v.now[:0], v.then[:0]
}

// shares is which part of its need each gets of total, by weight.
func shares(needs, weights []float64, total float64) []float64 {
	parts := make([]float64, len(needs))
	order := make([]int, len(needs))
	heavy := 0.0
	for i := range needs {
		order[i] = i
		heavy += weights[i]
	}
	// Those who need least for their weight first: what they leave is the others'.
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
