package placing

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// A set is a model that is cut over several members (Gillis). Its master sends every round's
// inputs to the others, and waits for the slowest. If its config fits one node, it goes there as
// any other instance. Otherwise its members may go to several nodes, all or none: to as few as
// possible, because a member on another node than the master's costs the network's time, and of
// these to those that it fills best, as Eq. 10 does.
//
// For example a set of four members of 1000m finds no node with 4000m free, but nodes with 3000m,
// 2000m, 2000m and 1000m. Two of them are enough: 3000m and 1000m, which it fills. The master and
// two others share the first.

// Lack says how far the nodes are from having room for a set.
type Lack struct {
	// Members of Of had no room, each of which takes Each. Of is 0 if there was no set to place.
	Members, Of int
	Each        cluster.Resources
}

// String says how many members of what size had no room.
func (l Lack) String() string {
	what := fmt.Sprintf("%dm CPU", l.Each.CPU)
	if l.Each.GPU > 0 {
		what += fmt.Sprintf(", %d%% of a GPU", l.Each.GPU)
	}
	return fmt.Sprintf("the nodes have no room for %d of a set's %d members, which take %s and %d MiB each", l.Members, l.Of, what, l.Each.Memory>>20)
}

// isSet reports whether instances with the choice have several members.
func isSet(c *capacity.Choice) bool { return c.Config.Members() > 1 }

// copies is how often part fits on place i, at most n. A set has no share of a device: each of its
// members would need one.
func (r *Room) copies(i int, part cluster.Resources, n int) int {
	if r.Places[i].Devices != nil && part.OnDevice() != (cluster.Resources{}) {
		return 0
	}
	return copies(part, r.Places[i].Free, n)
}

// copies is how often part fits into free, at most n.
func copies(part, free cluster.Resources, n int) int {
	for _, x := range [...][2]int64{{int64(part.CPU), int64(free.CPU)}, {int64(part.GPU), int64(free.GPU)}, {part.Memory, free.Memory}, {part.GPUMemory, free.GPUMemory}} {
		switch {
		case x[1] < x[0]:
			return 0
		case x[0] > 0:
			n = min(n, int(x[1]/x[0]))
		}
	}
	return n
}

// host is a place and how many members of a set have room there, or go there.
type host struct{ place, members int }

// divide returns the places of a set's members, by member, with the place of most members first.
// lacks is how many members have no room; then there are no places. The weight is the free
// βC + G of all its places.
func (r *Room) divide(c *capacity.Choice, on Allowed) (places []int, weight float64, lacks int) {
	n, each := c.Config.Members(), c.Config.Each()
	if c.Config.Together() {
		return nil, 0, n
	}
	var hosts []host // Those that are chosen first come first.
	lacks = n
	for _, i := range r.preferred() {
		if !on.Has(i) {
			continue
		}
		if k := r.copies(i, each, n); k > 0 {
			hosts, lacks = append(hosts, host{i, k}), lacks-k
		}
	}
	if lacks > 0 {
		return nil, 0, lacks
	}
	chosen := fewest(hosts, n)
	slices.SortStableFunc(chosen, func(a, b host) int {
		return cmp.Or(cmp.Compare(b.members, a.members), cmp.Compare(a.place, b.place))
	})
	for _, h := range chosen {
		places = append(places, slices.Repeat([]int{h.place}, h.members)...)
		weight += r.Options.Weigh(r.Places[h.place].Free)
	}
	return places, weight, 0
}

// preferred lists the places in the order in which one with room is taken, by Options.Placement.
func (r *Room) preferred() []int {
	order := make([]int, len(r.order))
	for at, w := range r.order {
		order[at] = w.index
	}
	if r.Options.Placement == capacity.Spread {
		slices.SortStableFunc(order, func(a, b int) int {
			return cmp.Compare(r.Places[b].unallocated(), r.Places[a].unallocated())
		})
	}
	return order
}

// fewest chooses the fewest of the hosts that have room for n members together, and says how many
// go to each. Of equally few it takes the first of the list that is possible, then the next.
func fewest(hosts []host, n int) (chosen []host) {
	rooms := make([]int, len(hosts)) // the most members first
	for i, h := range hosts {
		rooms[i] = h.members
	}
	slices.SortFunc(rooms, func(a, b int) int { return cmp.Compare(b, a) })
	least := 0
	for sum := 0; sum < n; least++ {
		sum += rooms[least]
	}
	hosts = slices.Clone(hosts)
	for ; n > 0; least-- {
		sum := 0 // of the other hosts with the most room
		for _, room := range rooms[:least-1] {
			sum += room
		}
		at := slices.IndexFunc(hosts, func(h host) bool {
			others := sum
			if least > 1 && h.members >= rooms[least-2] { // It is one of these.
				others += rooms[least-1] - h.members
			}
			return h.members+others >= n
		})
		h := hosts[at]
		hosts = slices.Delete(hosts, at, at+1)
		i := slices.Index(rooms, h.members)
		rooms = slices.Delete(rooms, i, i+1)
		h.members = min(h.members, n)
		chosen, n = append(chosen, h), n-h.members
	}
	return chosen
}

// pickSet returns the set to place on several nodes, and where: on as few as possible, and of
// equally few that with the highest Eq. 10 over all its nodes together. A set that takes share
// comes before one that does not, as in pick.
func (r *Room) pickSet(choices []capacity.Choice, on Allowed, residual, share float64) (best scored, found bool) {
	top, least := r.scale(choices, residual)
	for i := range choices {
		c := &choices[i]
		if !isSet(c) {
			continue
		}
		places, weight, lacks := r.divide(c, on)
		if lacks > 0 {
			continue
		}
		used := c.Cost
		if r.Options.DemandCapped {
			used = min(used, least)
		}
		s := scored{*c, places[0], places, r.perResource(c, residual) / top / max(1-used/weight, r.Options.FragmentFloor)}
		by := cmp.Or(boolean(c.Range.Up >= share)-boolean(best.Range.Up >= share), nodesOf(best.nodes)-nodesOf(places))
		if !found || by > 0 || by == 0 && s.better(&best) {
			best, found = s, true
		}
	}
	return best, found
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// nodesOf counts the different places of members; equal ones are neighbours.
func nodesOf(places []int) int { return len(slices.Compact(slices.Clone(places))) }

// put takes the room of a choice on its places and returns the instance.
func (r *Room) put(s *scored, on Allowed) Placed {
	p := Placed{Candidate: s.Candidate, Node: r.Places[s.node].Name, Range: s.Range, Efficiency: s.efficiency}
	if s.nodes == nil {
		p.Device = r.Take(s.node, s.Config.Resources, on.Tenant) // line 13
		return p
	}
	for _, i := range s.nodes {
		r.Take(i, s.Config.Each(), on.Tenant)
		p.Nodes = append(p.Nodes, r.Places[i].Name)
	}
	return p
}

// Divide places sets for a residual load, at most most of them if that is not 0: on one node as
// long as one has room, then on several. It takes the room. It returns the sets and the load that
// is left over.
func (r *Room) Divide(choices []capacity.Choice, on Allowed, residual float64, most int) (placed []Placed, left float64) {
	sets := slices.DeleteFunc(slices.Clone(choices), func(c capacity.Choice) bool { return !isSet(&c) })
	for left = residual; len(sets) > 0 && left > capacity.Negligible*residual && (most == 0 || len(placed) < most); {
		best, ok := r.best(sets, on, left, 0, false)
		if !ok {
			best, ok = r.pickSet(sets, on, left, 0)
		}
		if !ok {
			break
		}
		placed = append(placed, r.put(&best, on))
		left -= best.Range.Up
	}
	return placed, max(0, left)
}

// Fits reports whether there is room for one of the choices: on a node, or for a set on several.
func (r *Room) Fits(choices []capacity.Choice, on Allowed) bool {
	return slices.ContainsFunc(choices, func(c capacity.Choice) bool {
		if _, ok := r.fit(&c, on); ok {
			return true
		}
		if !isSet(&c) {
			return false
		}
		_, _, lacks := r.divide(&c, on)
		return lacks == 0
	})
}

// Lack returns how far the nodes are from room for the set of the choices that comes nearest.
func (r *Room) Lack(choices []capacity.Choice, on Allowed) (nearest Lack) {
	part := math.Inf(1)
	for i := range choices {
		c := &choices[i]
		if !isSet(c) {
			continue
		}
		n := c.Config.Members()
		if _, _, lacks := r.divide(c, on); float64(lacks)/float64(n) < part {
			part, nearest = float64(lacks)/float64(n), Lack{lacks, n, c.Config.Each()}
		}
	}
	return nearest
}
