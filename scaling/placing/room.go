// Package placing decides on which nodes instances go: Algorithm 1 of INFless with Eq. 10
// ([Schedule]), on the nodes' free resources while a plan is made ([Room]). It starts nothing
// and does not decide how much load to place. Begin with [Room.Schedule].
package placing

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// Room has the nodes' free resources while a plan is made. For one config, Eq. 10 is highest on
// the node with the least free βC + G that has room in every dimension. Room keeps the nodes in
// that order and finds the best one by a search.
type Room struct {
	Options capacity.Options
	// Places has the nodes by name.
	Places []Place
	// order has every place by (weight, index).
	order []weighed
}

// Place is one node, with what is free while the plan is made. Change that by the methods of
// [Room] only.
type Place struct {
	cluster.Node
	// Used: the node holds something.
	Used bool
	// Leaving has the instances whose room already counts as free. An instance that takes
	// room here must wait for them.
	Leaving []cluster.InstanceID
}

// weighed is a place's index and its free βC + G.
type weighed struct {
	weight float64
	index  int
}

func compareWeighed(a, b weighed) int {
	return cmp.Or(cmp.Compare(a.weight, b.weight), cmp.Compare(a.index, b.index))
}

// New returns the room on these nodes. Options without a β get the default.
func New(nodes []cluster.Node, o capacity.Options) *Room {
	if !(o.Beta > 0) {
		o.Beta = capacity.DefaultBeta
	}
	o.FragmentFloor = max(o.FragmentFloor, 1e-6)
	r := &Room{Options: o, Places: make([]Place, len(nodes)), order: make([]weighed, len(nodes))}
	for i, n := range nodes {
		r.Places[i] = Place{Node: n, Used: n.Free != n.Total}
	}
	slices.SortFunc(r.Places, func(a, b Place) int { return strings.Compare(a.Name, b.Name) })
	for i, p := range r.Places {
		r.order[i] = weighed{o.Weigh(p.Free), i}
	}
	slices.SortFunc(r.order, compareWeighed)
	return r
}

// Clone returns an independent copy, for trials.
func (r *Room) Clone() *Room {
	return &Room{Options: r.Options, Places: slices.Clone(r.Places), order: slices.Clone(r.order)}
}

// Find returns the index of the node called name.
func (r *Room) Find(name string) (int, bool) {
	return slices.BinarySearchFunc(r.Places, name, func(p Place, name string) int { return strings.Compare(p.Name, name) })
}

// Take takes what a new instance of a tenant needs from place i. It returns the device of its share, "" if
// it has none.
func (r *Room) Take(i int, need cluster.Resources, t cluster.Tenant) (device string) {
	r.Places[i].Used = true
	r.change(i, func(n *cluster.Node) { device = n.Start(need, t) })
	return device
}

// Hold takes from place i what an instance that is there holds, on a device or on none.
func (r *Room) Hold(i int, held cluster.Resources, device string) {
	r.Places[i].Used = true
	r.change(i, func(n *cluster.Node) { n.Hold(held, device) })
}

// Grow takes more from place i for an instance that is there, on a device or on none, or less if
// more is negative.
func (r *Room) Grow(i int, more cluster.Resources, device string) {
	r.Places[i].Used = true
	r.change(i, func(n *cluster.Node) { n.Change(more, device) })
}

// Give returns to place i what an instance holds that is about to stop.
func (r *Room) Give(i int, held cluster.Resources, device string, id cluster.InstanceID) {
	r.Undo(i, held, device)
	p := &r.Places[i]
	// A clone shares the list; Clip hides the addition from it.
	p.Leaving = append(slices.Clip(p.Leaving), id)
}

// Undo returns to place i what an instance holds that will not start, or as if it had not.
func (r *Room) Undo(i int, held cluster.Resources, device string) {
	r.change(i, func(n *cluster.Node) { n.Drop(held, device) })
}

// change changes what is free on place i and moves it in order.
func (r *Room) change(i int, by func(*cluster.Node)) {
	was := weighed{r.Options.Weigh(r.Places[i].Free), i}
	by(&r.Places[i].Node)
	is := weighed{r.Options.Weigh(r.Places[i].Free), i}
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

// fit finds the node for c among the allowed ones: with BestFit the one with the least free
// βC + G that has room for it.
func (r *Room) fit(c *capacity.Choice, on Allowed) (weighed, bool) {
	if r.Options.Placement == capacity.Spread {
		return r.emptiest(c, on)
	}
	from := sort.Search(len(r.order), func(i int) bool { return r.order[i].weight >= c.Cost })
	for _, w := range r.order[from:] {
		if r.fits(w.index, c.Config.Resources, on) {
			return w, true
		}
	}
	return weighed{}, false
}

// emptiest finds the node for c with Spread.
func (r *Room) emptiest(c *capacity.Choice, on Allowed) (weighed, bool) {
	best, most := -1, math.Inf(-1)
	for i := range r.Places {
		p := &r.Places[i]
		if !r.fits(i, c.Config.Resources, on) {
			continue
		}
		if part := p.unallocated(); part > most {
			best, most = i, part
		}
	}
	if best < 0 {
		return weighed{}, false
	}
	return weighed{r.Options.Weigh(r.Places[best].Free), best}, true
}

// unallocated is the free part of the node: the mean over CPU, memory and GPU, as far as the
// node has them.
func (p *Place) unallocated() float64 {
	sum, n := 0.0, 0.0
	for _, x := range [][2]float64{
		{float64(p.Free.CPU), float64(p.Total.CPU)}, {float64(p.Free.Memory), float64(p.Total.Memory)}, {float64(p.Free.GPU), float64(p.Total.GPU)},
	} {
		if x[1] > 0 {
			sum, n = sum+x[0]/x[1], n+1
		}
	}
	return sum / max(n, 1)
}

// pick is one round of lines 3–15: it returns the config and the node for the next instance. If
// the number of instances is limited, each should take share requests per second. If no config
// can, pick takes the one with the highest rate.
func (r *Room) pick(choices []capacity.Choice, on Allowed, residual, share float64, q capacity.Queue) (scored, bool) {
	if q == capacity.LateBound {
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
	// The load fills no batch for which there is room. The smallest batch that fits leaves
	// unfilled when it times out, still within the SLO.
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
func sameBatch(choices []capacity.Choice) int {
	n := 1
	for n < len(choices) && choices[n].Config.Batch == choices[0].Config.Batch {
		n++
	}
	return n
}

// sameBatchFromEnd counts the choices that share the last one's batch size.
func sameBatchFromEnd(choices []capacity.Choice) int {
	last, n := len(choices)-1, 1
	for n <= last && choices[last-n].Config.Batch == choices[last].Config.Batch {
		n++
	}
	return n
}

// fills is line 25's R_k > r_low: the load fills the batch before it times out.
func fills(c *capacity.Choice, residual float64) bool {
	return c.Config.Batch == 1 || residual > c.Range.Low
}

// scored is a choice on its best node.
type scored struct {
	capacity.Choice
	node int
	// nodes are the members' of a set on several nodes, by member; node is the first one's.
	nodes      []int
	efficiency float64
}

// best returns the choice with the highest Eq. 10 (lines 8–11):
//
//	e_ij = (RPS/(βc+g), normalised) / (1 − (βc+g)/(βC_j+G_j))
func (r *Room) best(choices []capacity.Choice, on Allowed, residual, share float64, fill bool) (scored, bool) {
	top, least := r.scale(choices, residual)
	var best scored
	found := false
	for i := range choices {
		c := &choices[i]
		if c.Range.Up < share || fill && !fills(c, residual) {
			continue
		}
		node, ok := r.fit(c, on)
		if !ok {
			continue
		}
		if s := r.score(c, node, top, least, residual); !found || s.better(&best) {
			best, found = s, true
		}
	}
	return best, found
}

// score is Eq. 10 for a choice on a node. top and least are those of scale.
func (r *Room) score(c *capacity.Choice, node weighed, top, least, residual float64) scored {
	used := c.Cost
	if r.Options.DemandCapped {
		used = min(used, least)
	}
	fragment := max(1-used/node.weight, r.Options.FragmentFloor)
	return scored{*c, node.index, nil, r.perResource(c, residual) / top / fragment}
}

// Twin places one more instance for a residual load on a node where another one maps the same file,
// so that it takes only its own memory there: the choice of the highest Eq. 10. It takes the room, and
// returns false if there is none.
func (r *Room) Twin(choices []capacity.Choice, on Allowed, residual float64) (Placed, bool) {
	if len(choices) == 0 {
		return Placed{}, false
	}
	top, least := r.scale(choices, residual)
	var best scored
	found := false
	for i := range choices {
		c := &choices[i]
		for _, node := range r.order {
			if c.Config.Mapped.Bytes > 0 && r.Places[node.index].Maps(c.Config.Mapped) && r.fits(node.index, c.Config.Resources, on) {
				if s := r.score(c, node, top, least, residual); !found || s.better(&best) {
					best, found = s, true
				}
				break
			}
		}
	}
	if !found {
		return Placed{}, false
	}
	return r.put(&best, on), true
}

// perResource is the numerator of Eq. 10 before it is normalised.
func (r *Room) perResource(c *capacity.Choice, residual float64) float64 {
	rps := c.Range.Up
	if r.Options.DemandCapped {
		rps = min(rps, residual)
	}
	return rps / c.Cost
}

// scale returns the highest numerator of Eq. 10, which normalises the others,
// and the least βc + g that could carry the load.
func (r *Room) scale(choices []capacity.Choice, residual float64) (top, least float64) {
	efficient := 0.0
	for i := range choices {
		top = max(top, r.perResource(&choices[i], residual))
		efficient = max(efficient, choices[i].Range.Up/choices[i].Cost)
	}
	return top, residual / efficient
}

// better compares choices by Eq. 10, then lower cost, higher rate, less memory. Choices that are
// equal in all of that come in the order of Options.Choices, and the first stays.
func (s *scored) better(than *scored) bool {
	return cmp.Or(
		cmp.Compare(s.efficiency, than.efficiency),
		cmp.Compare(than.Cost, s.Cost),
		cmp.Compare(s.Range.Up, than.Range.Up),
		cmp.Compare(than.Config.Memory, s.Config.Memory),
	) > 0
}

// strongest returns the choice with the highest rate.
func (r *Room) strongest(choices []capacity.Choice, on Allowed, residual float64) (scored, bool) {
	var best scored
	found := false
	for i := range choices {
		c := &choices[i]
		if !fills(c, residual) || found && c.Range.Up <= best.Range.Up {
			continue
		}
		if node, ok := r.fit(c, on); ok {
			best, found = scored{Choice: *c, node: node.index}, true
		}
	}
	return best, found
}
