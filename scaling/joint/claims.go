package joint

import (
	"cmp"
	"maps"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/packing"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// GPUs that are claimed serve instances of one namespace each ([cluster.DeviceRoom.Serves]), and a pattern
// does not know devices. So a plan leaves the claimed GPUs of each node to one namespace, its tenant, and
// bars the shares of all others there; on the node's cores nothing is barred. What finds no room that way
// is packed once more, as in devices.go, and then the tenants may be others.

// tenants returns, by place, the namespace that may take shares of its GPUs; "" where GPUs are not
// claimed. Places that several namespaces may have are divided in proportion to the cost of what each
// is short of, by the method of D'Hondt: the next goes to whoever has the highest cost over the places
// that it has and one more. It returns nil if no share is barred anywhere.
func (p *Problem) tenants(room *placing.Room) []string {
	if !slices.ContainsFunc(room.Places, func(at placing.Place) bool { return claimed(&at.Node) }) {
		return nil
	}
	short := p.shortOfShares()
	names := slices.Sorted(maps.Keys(short))
	if len(names) == 0 {
		return nil
	}
	barred := p.only != nil
	tenants, has := make([]string, len(room.Places)), map[string]int{}
	var open []int
	for i := range room.Places {
		at := &room.Places[i].Node
		if !claimed(at) {
			continue
		}
		var may []string
		for _, name := range names {
			if shareable(at, name) > 0 {
				may = append(may, name)
			}
		}
		barred = barred || len(may) < len(names) || len(names) > 1 || slices.ContainsFunc(at.Devices, func(d cluster.DeviceRoom) bool { return !d.Serves(names[0]) })
		switch len(may) {
		case 0:
			tenants[i] = names[0]
		case 1:
			tenants[i] = may[0]
			has[may[0]]++
		default:
			open = append(open, i)
		}
	}
	if !barred {
		return nil
	}
	for _, i := range open {
		may := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return shareable(&room.Places[i].Node, name) == 0 })
		tenants[i] = slices.MaxFunc(may, func(a, b string) int { // The first of equal ones stays.
			return cmp.Compare(short[a]/float64(has[a]+1), short[b]/float64(has[b]+1))
		})
		has[tenants[i]]++
	}
	return tenants
}

// claimed reports whether GPUs of a node are claimed.
func claimed(n *cluster.Node) bool {
	return slices.ContainsFunc(n.Devices, func(d cluster.DeviceRoom) bool { return d.Claimed })
}

// shareable is what a namespace can have of a node's GPUs, in %.
func shareable(n *cluster.Node, namespace string) (percent int) {
	for i := range n.Devices {
		if d := &n.Devices[i]; d.Lost == "" && d.Serves(namespace) {
			percent += d.Free.GPU
		}
	}
	return percent
}

// shortOfShares returns the cost of what the demands of each namespace are short of, if an instance of
// theirs can have a share of a GPU.
func (p *Problem) shortOfShares() map[string]float64 {
	short := map[string]float64{}
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
		if shares && need > 0 && (p.only == nil || slices.Contains(p.only, d.Allowed.Namespace)) {
			short[d.Allowed.Namespace] += need * cheapest
		}
	}
	return short
}

// within lists the devices of a node that serve a namespace.
func within(devices []cluster.DeviceRoom, namespace string) []cluster.DeviceRoom {
	return slices.DeleteFunc(slices.Clone(devices), func(d cluster.DeviceRoom) bool { return !d.Serves(namespace) })
}

// barShares bars in a problem the shares of all but the tenants of classes. It adds a demand of 0 for
// each namespace, which every item with a share serves, too: only demands can be barred.
func (p *Problem) barShares(problem *packing.Problem, classes []Class) {
	first := len(problem.Demands)
	var names []string
	problem.Items = slices.Clone(problem.Items)
	for i := range problem.Items {
		it := &problem.Items[i]
		if it.Need.GPU == 0 {
			continue
		}
		name := p.Demands[p.of[i]].Allowed.Namespace
		at := slices.Index(names, name)
		if at < 0 {
			at, names = len(names), append(names, name)
		}
		it.Demands = append(slices.Clip(it.Demands), first+at)
	}
	problem.Demands = append(slices.Clip(problem.Demands), make([]float64, len(names))...)
	for j := range problem.Classes {
		c := &problem.Classes[j]
		barred := make([]bool, len(problem.Demands))
		copy(barred, c.Barred)
		for at, name := range names {
			barred[first+at] = classes[j].tenanted && classes[j].tenant != name
		}
		c.Barred = barred
	}
}
