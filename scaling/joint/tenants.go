package joint

import (
	"cmp"
	"maps"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/packing"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// Not every GPU serves every function ([cluster.DeviceRoom.Serves]), and a pattern does not know devices.
// So a plan leaves the GPUs of such a node to one tenant and bars the shares of all others there; on the
// node's cores nothing is barred. What finds no room that way is packed once more, as in devices.go, and
// then the tenants may be others.

// tenants returns, by place, who may take shares of its GPUs; nil where everybody may. Places that several
// may have are divided in proportion to the cost of what each is short of, by the method of D'Hondt: the
// next goes to whoever has the highest cost over the places that it has and one more. It returns nil if
// everybody may have all.
func (p *Problem) tenants(room *placing.Room) []*cluster.Tenant {
	all := p.sharers()
	if !slices.ContainsFunc(room.Places, func(at placing.Place) bool { return divided(&at.Node, all) }) {
		return nil
	}
	short := p.shortOfShares()
	order := slices.SortedFunc(maps.Keys(short), cluster.Tenant.Compare)
	tenants, has := make([]*cluster.Tenant, len(room.Places)), map[cluster.Tenant]int{}
	var open []int
	for i := range room.Places {
		at := &room.Places[i].Node
		if !divided(at, all) {
			continue
		}
		switch may := sharing(at, order); len(may) {
		case 0:
			tenants[i] = &all[0] // It has nothing of it, and neither has anybody else.
		case 1:
			tenants[i] = &may[0]
			has[may[0]]++
		default:
			open = append(open, i)
		}
	}
	for _, i := range open {
		next := slices.MaxFunc(sharing(&room.Places[i].Node, order), func(a, b cluster.Tenant) int { // The first of equal ones stays.
			return cmp.Compare(short[a]/float64(has[a]+1), short[b]/float64(has[b]+1))
		})
		tenants[i] = &next
		has[next]++
	}
	return tenants
}

// sharers lists the tenants of which an instance can have a share of a GPU.
func (p *Problem) sharers() (all []cluster.Tenant) {
	for k := range p.Demands {
		t := p.Demands[k].Allowed.Tenant
		if !slices.Contains(all, t) && slices.ContainsFunc(p.items[p.from[k]:p.from[k]+len(p.Demands[k].Choices)], func(it packing.Item) bool { return it.Need.GPU > 0 }) {
			all = append(all, t)
		}
	}
	return all
}

// divided reports whether the GPUs of a node do not serve all of the tenants, or not all at once.
func divided(n *cluster.Node, all []cluster.Tenant) bool {
	for i := range n.Devices {
		d := &n.Devices[i]
		for _, t := range all {
			if !d.Serves(t) || d.Claimed && t.Namespace != all[0].Namespace {
				return true
			}
		}
	}
	return false
}

// sharing lists the tenants that something of a node's GPUs is free for.
func sharing(n *cluster.Node, of []cluster.Tenant) []cluster.Tenant {
	return slices.DeleteFunc(slices.Clone(of), func(t cluster.Tenant) bool {
		return !slices.ContainsFunc(n.Devices, func(d cluster.DeviceRoom) bool { return d.Lost == "" && d.Serves(t) && d.Free.GPU > 0 })
	})
}

// shortOfShares returns the cost of what the demands of each tenant are short of, if an instance of theirs
// can have a share of a GPU.
func (p *Problem) shortOfShares() map[cluster.Tenant]float64 {
	short := map[cluster.Tenant]float64{}
	for k := range p.Demands {
		d, cheapest, shares := &p.Demands[k], 0.0, false
		for i := range d.Choices {
			c := &d.Choices[i]
			shares = shares || c.Config.GPU > 0
			if price := c.Cost / c.Range.Up; cheapest == 0 || price < cheapest {
				cheapest = price
			}
		}
		need := d.Need
		for n := range d.Shares {
			need = max(need, d.Shares[n].Need)
		}
		if t := d.Allowed.Tenant; shares && need > 0 && (p.only == nil || *p.only == t) {
			short[t] += need * cheapest
		}
	}
	return short
}

// within lists the devices of a node that serve a tenant.
func within(devices []cluster.DeviceRoom, t cluster.Tenant) []cluster.DeviceRoom {
	return slices.DeleteFunc(slices.Clone(devices), func(d cluster.DeviceRoom) bool { return !d.Serves(t) })
}

// barShares bars in a problem the shares of all but the tenants of classes. It adds a demand of 0 for
// each tenant, which every item of it with a share serves, too: only demands can be barred.
func (p *Problem) barShares(problem *packing.Problem, classes []Class) {
	first, all := len(problem.Demands), p.sharers()
	problem.Items = slices.Clone(problem.Items)
	for i := range problem.Items {
		if it := &problem.Items[i]; it.Need.GPU > 0 {
			it.Demands = append(slices.Clip(it.Demands), first+slices.Index(all, p.Demands[p.of[i]].Allowed.Tenant))
		}
	}
	problem.Demands = append(slices.Clip(problem.Demands), make([]float64, len(all))...)
	for j := range problem.Classes {
		c := &problem.Classes[j]
		barred := make([]bool, len(problem.Demands))
		copy(barred, c.Barred)
		for at, t := range all {
			barred[first+at] = classes[j].tenanted && classes[j].tenant != t
		}
		c.Barred = barred
	}
}
