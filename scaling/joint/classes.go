package joint

import (
	"cmp"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/packing"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// Class is a kind of nodes for a plan, with the places of that kind.
type Class struct {
	packing.Class
	Places []int
	// tenanted: of the GPUs of these nodes only the tenant's instances have shares.
	tenanted bool
	tenant   cluster.Tenant
}

// maxClasses bounds how many kinds of nodes a plan distinguishes. It drops the kinds with
// the least room.
const maxClasses = 40

// classes groups the places in which something fits by their free resources, by whether
// they are in use, and by the demands that they bar.
func (p *Problem) classes(room *placing.Room) []Class {
	type kind struct {
		free cluster.Resources
		used bool
		zone int
		// tenanted and tenant are those of Class.
		tenanted bool
		tenant   cluster.Tenant
	}
	index := map[kind]int{}
	var all []Class
	zone, barred := p.zones(len(room.Places))
	tenants := p.tenants(room)
	fresh := map[cluster.Resources]int{} // By kind: one with a GPU does not replace one without.
	for i := range room.Places {
		at := &room.Places[i]
		k := kind{used: at.Used, zone: zone[i]}
		devices := at.Devices
		if tenants != nil && tenants[i] != nil {
			k.tenanted, k.tenant = true, *tenants[i]
			devices = within(devices, k.tenant)
		}
		k.free = p.free(at, devices)
		n, known := index[k]
		if !known {
			n = -1
			if p.fits(k.free, barred[k.zone]) {
				n = len(all)
				all = append(all, Class{Class: packing.Class{Free: k.free, Cost: p.cost(room, at), Barred: barred[k.zone]}, tenanted: k.tenanted, tenant: k.tenant})
			}
			index[k] = n
		}
		if n >= 0 && (at.Used || !p.Lean || fresh[at.Total] < p.Nodes) {
			all[n].Places = append(all[n].Places, i)
			all[n].Count++
			if !at.Used {
				fresh[at.Total]++
			}
		}
	}
	if len(all) > maxClasses {
		slices.SortStableFunc(all, func(a, b Class) int {
			return cmp.Compare(room.Options.Weigh(b.Free)*float64(b.Count), room.Options.Weigh(a.Free)*float64(a.Count))
		})
		all = all[:maxClasses]
	}
	return all
}

// cost is the cost of using a place. For a place in use it is in proportion to the
// smaller of its free parts of CPU and GPU.
func (p *Problem) cost(room *placing.Room, at *placing.Place) float64 {
	whole := room.Options.Weigh(at.Total)
	switch {
	case p.Lean && at.Used:
		return 0
	case p.Lean:
		return shareCost * shareCost * whole
	case !at.Used:
		return whole
	}
	part := 1.0
	if at.Total.CPU > 0 {
		part = min(part, float64(at.Free.CPU)/float64(at.Total.CPU))
	}
	if at.Total.GPU > 0 && at.Free.GPU > 0 {
		part = min(part, float64(at.Free.GPU)/float64(at.Total.GPU))
	}
	return roomCost * max(0, part) * whole
}

// barred returns, by demand and share, whether it may not be on a place; nil if all may.
func (p *Problem) barred(place int) (barred []bool) {
	for k := range p.Demands {
		if p.Demands[k].Allowed.Has(place) {
			continue
		}
		if barred == nil {
			barred = make([]bool, len(p.needs))
		}
		barred[k] = true
	}
	for n, k := range p.owners {
		if barred != nil {
			barred[len(p.Demands)+n] = barred[k]
		}
	}
	return barred
}

// zones numbers the places by the demands that they bar. of has each place's number. Thousands of
// demands share few lists of places.
func (p *Problem) zones(places int) (of []int, barred [][]bool) {
	of = make([]int, places)
	var lists []placing.Allowed
	known := map[*bool]bool{nil: true}
	for _, d := range p.Demands {
		if id := d.Allowed.List(); !known[id] {
			known[id] = true
			lists = append(lists, d.Allowed)
		}
	}
	if len(lists) == 0 {
		return of, [][]bool{nil}
	}
	zones := map[string]int{}
	on := make([]byte, len(lists))
	for i := range of {
		for n, a := range lists {
			if on[n] = 0; a.Has(i) {
				on[n] = 1
			}
		}
		zone, there := zones[string(on)]
		if !there {
			zone = len(barred)
			zones[string(on)], barred = zone, append(barred, p.barred(i))
		}
		of[i] = zone
	}
	return of, barred
}

// fits reports whether some item, of a demand that is not barred, fits into free.
func (p *Problem) fits(free cluster.Resources, barred []bool) bool {
	return slices.ContainsFunc(p.items, func(it packing.Item) bool {
		return it.Need.Fits(free) && (barred == nil || !barred[it.Demands[0]])
	})
}
