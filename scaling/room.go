package scaling

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/faas-infer/faas-infer/cluster"
)

// room is what the nodes have free while a plan is made. For one config,
// Eq. 10 is highest on the node with the least free βC + G that has room in
// every dimension; the nodes are kept in that order, so that the best node is
// found by a search instead of a pass over all of them.
type room struct {
	options Options
	// places are the nodes by name.
	places []place
	// order holds every place by (weight, index).
	order []weighed
}

// place is one node.
type place struct {
	name string
	// total is what instances may have of the node, whether they have it or
	// not.
	free, total cluster.Resources
	// used: it holds something.
	used bool
	// leaving are the instances whose room is counted as free already. Who
	// takes room here waits for them.
	leaving []cluster.InstanceID
}

// weighed is a place's βC + G.
type weighed struct {
	weight float64
	index  int
}

func compareWeighed(a, b weighed) int {
	return cmp.Or(cmp.Compare(a.weight, b.weight), cmp.Compare(a.index, b.index))
}

func newRoom(nodes []cluster.Node, o Options) *room {
	if !(o.Beta > 0) {
		o.Beta = DefaultBeta
	}
	o.FragmentFloor = max(o.FragmentFloor, 1e-6)
	r := &room{options: o, places: make([]place, len(nodes)), order: make([]weighed, len(nodes))}
	for i, n := range nodes {
		r.places[i] = place{name: n.Name, free: n.Free, total: n.Total, used: n.Free != n.Total}
	}
	slices.SortFunc(r.places, func(a, b place) int { return strings.Compare(a.name, b.name) })
	for i, p := range r.places {
		r.order[i] = weighed{o.weigh(p.free), i}
	}
	slices.SortFunc(r.order, compareWeighed)
	return r
}

// clone is a copy to try things on.
func (r *room) clone() *room {
	return &room{options: r.options, places: slices.Clone(r.places), order: slices.Clone(r.order)}
}

// find returns the index of the node called name.
func (r *room) find(name string) (int, bool) {
	return slices.BinarySearchFunc(r.places, name, func(p place, name string) int { return strings.Compare(p.name, name) })
}

// take takes res from place i.
func (r *room) take(i int, res cluster.Resources) {
	r.places[i].used = true
	r.set(i, r.places[i].free.Sub(res))
}

// give returns to place i what an instance that is about to stop holds.
func (r *room) give(i int, res cluster.Resources, id cluster.InstanceID) {
	r.set(i, r.places[i].free.Add(res))
	p := &r.places[i]
	// Clip: a clone shares the list, and must not see what is added here.
	p.leaving = append(slices.Clip(p.leaving), id)
}

// set changes what place i has free and moves it to where it belongs in order.
func (r *room) set(i int, free cluster.Resources) {
	was := weighed{r.options.weigh(r.places[i].free), i}
	is := weighed{r.options.weigh(free), i}
	r.places[i].free = free
	from, _ := slices.BinarySearchFunc(r.order, was, compareWeighed)
	to, _ := slices.BinarySearchFunc(r.order, is, compareWeighed)
	if to > from {
		to--
		copy(r.order[from:to], r.order[from+1:to+1])
	} else {
		copy(r.order[to+1:from+1], r.order[to:from])
	}
	r.order[to] = is
}

// fit finds the node for c among those that are allowed: with BestFit the one with the least βC + G that has
// room for it.
func (r *room) fit(c *choice, on allowed) (weighed, bool) {
	if r.options.Placement != BestFit {
		return r.elsewhere(c, on)
	}
	from := sort.Search(len(r.order), func(i int) bool { return r.order[i].weight >= c.cost })
	for _, w := range r.order[from:] {
		if on.has(w.index) && c.Config.Resources.Fits(r.places[w.index].free) {
			return w, true
		}
	}
	return weighed{}, false
}

// elsewhere finds the node for c with FirstFit or Spread.
func (r *room) elsewhere(c *choice, on allowed) (weighed, bool) {
	best, most := -1, math.Inf(-1)
	for i := range r.places {
		p := &r.places[i]
		if !on.has(i) || !c.Config.Resources.Fits(p.free) {
			continue
		}
		if r.options.Placement == FirstFit {
			best = i
			break
		}
		if part := p.unallocated(); part > most {
			best, most = i, part
		}
	}
	if best < 0 {
		return weighed{}, false
	}
	return weighed{r.options.weigh(r.places[best].free), best}, true
}

// unallocated is the part that is free, the mean of CPU, memory and GPU as far as
// the node has them.
func (p *place) unallocated() float64 {
	sum, n := 0.0, 0.0
	for _, x := range [][2]float64{
		{float64(p.free.CPU), float64(p.total.CPU)}, {float64(p.free.Memory), float64(p.total.Memory)}, {float64(p.free.GPU), float64(p.total.GPU)},
	} {
		if x[1] > 0 {
			sum, n = sum+x[0]/x[1], n+1
		}
	}
	return sum / max(n, 1)
}

// pick is one round of lines 3–15: the config and the node for the next
// instance. Of a limited number of instances, each should take share requests
// per second; if none can, the one that takes the most is best.
func (r *room) pick(choices []choice, on allowed, residual, share float64, q Queue) (scored, bool) {
	if q == LateBound {
		if best, ok := r.best(choices, on, residual, share, true); ok || share == 0 {
			return best, ok
		}
		return r.strongest(choices, on, residual)
	}
	for rest := choices; len(rest) > 0; {
		n := sameBatch(rest)
		if best, ok := r.best(rest[:n], on, residual, share, true); ok {
			return best, true
		}
		rest = rest[n:]
	}
	if share > 0 {
		if best, ok := r.strongest(choices, on, residual); ok {
			return best, true
		}
	}
	// The load fills no batch for which there is room. The smallest one that
	// fits leaves unfilled when it times out, still within the SLO.
	for rest := choices; len(rest) > 0; {
		n := len(rest) - sameBatchFromEnd(rest)
		if best, ok := r.best(rest[n:], on, residual, 0, false); ok {
			return best, true
		}
		rest = rest[:n]
	}
	return scored{}, false
}

// sameBatch counts the choices that share the first one's batch size.
func sameBatch(choices []choice) int {
	n := 1
	for n < len(choices) && choices[n].Config.Batch == choices[0].Config.Batch {
		n++
	}
	return n
}

// sameBatchFromEnd counts the choices that share the last one's batch size.
func sameBatchFromEnd(choices []choice) int {
	last, n := len(choices)-1, 1
	for n <= last && choices[last-n].Config.Batch == choices[last].Config.Batch {
		n++
	}
	return n
}

// fills is line 25's R_k > r_low: the load fills the batch before it times out.
func (c *choice) fills(residual float64) bool {
	return c.Config.Batch == 1 || residual > c.bounds.Low
}

// scored is a choice on its best node.
type scored struct {
	choice
	node       int
	efficiency float64
}

// best is the choice with the highest Eq. 10 (lines 8–11):
//
//	e_ij = (RPS/(βc+g), normalised) / (1 − (βc+g)/(βC_j+G_j))
func (r *room) best(choices []choice, on allowed, residual, share float64, fill bool) (scored, bool) {
	top, least := r.scale(choices, residual)
	var best scored
	found := false
	for i := range choices {
		c := &choices[i]
		if c.bounds.Up < share || fill && !c.fills(residual) {
			continue
		}
		node, ok := r.fit(c, on)
		if !ok {
			continue
		}
		used := c.cost
		if r.options.DemandCapped {
			used = min(used, least)
		}
		fragment := max(1-used/node.weight, r.options.FragmentFloor)
		s := scored{*c, node.index, r.perResource(c, residual) / top / fragment}
		if !found || s.better(&best) {
			best, found = s, true
		}
	}
	return best, found
}

// perResource is the numerator of Eq. 10 before it is normalised.
func (r *room) perResource(c *choice, residual float64) float64 {
	rps := c.bounds.Up
	if r.options.DemandCapped {
		rps = min(rps, residual)
	}
	return rps / c.cost
}

// scale returns the highest numerator of Eq. 10, which normalises the others,
// and the least βc + g that could carry the load.
func (r *room) scale(choices []choice, residual float64) (top, least float64) {
	efficient := 0.0
	for i := range choices {
		top = max(top, r.perResource(&choices[i], residual))
		efficient = max(efficient, choices[i].bounds.Up/choices[i].cost)
	}
	return top, residual / efficient
}

// better orders choices: by Eq. 10; then what costs less, takes more, needs
// less memory. Choices that are the same in all of that come in the order of
// Options.choices, so the first stays.
func (s *scored) better(than *scored) bool {
	return cmp.Or(
		cmp.Compare(s.efficiency, than.efficiency),
		cmp.Compare(than.cost, s.cost),
		cmp.Compare(s.bounds.Up, than.bounds.Up),
		cmp.Compare(than.Config.Memory, s.Config.Memory),
	) > 0
}

// strongest is the choice that takes the most requests per second.
func (r *room) strongest(choices []choice, on allowed, residual float64) (scored, bool) {
	var best scored
	found := false
	for i := range choices {
		c := &choices[i]
		if !c.fills(residual) || found && c.bounds.Up <= best.bounds.Up {
			continue
		}
		if node, ok := r.fit(c, on); ok {
			best, found = scored{choice: *c, node: node.index}, true
		}
	}
	return best, found
}
