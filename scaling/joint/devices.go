package joint

import (
	"cmp"
	"maps"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/packing"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// A pattern is of a node, whose GPUs are one sum in it. But an instance needs its share of one
// device: three of 60 % are 180 of the 200 % of two GPUs, and only two fit. So what does not fit on
// the devices is packed once more, and then no pattern has more than the emptiest device of its
// node. That always fits.

// fill puts a solution's instances on the places, the largest shares of GPUs first. It reports
// whether all of them fit.
func (p *Problem) fill(room *placing.Room, classes []Class, s packing.Solution, placements []placing.Placement) bool {
	next, all := make([]int, len(classes)), true
	for _, f := range s.Filled {
		for range f.Count {
			at := classes[f.Class].Places[next[f.Class]]
			next[f.Class]++
			for _, item := range p.listed(f.Uses, room.Places[at].Devices != nil) {
				all = p.put(room, at, item, placements) && all
			}
		}
	}
	return all
}

// listed lists the items of a pattern, each as often as it is used. With devices those with the
// largest share come first.
func (p *Problem) listed(uses []packing.Use, devices bool) (items []int) {
	for _, u := range uses {
		items = append(items, slices.Repeat([]int{u.Item}, u.Count)...)
	}
	if devices {
		slices.SortStableFunc(items, func(a, b int) int { return largestFirst(p.items[a].Need, p.items[b].Need) })
	}
	return items
}

// largestFirst orders needs by their share of a device, the largest first.
func largestFirst(a, b cluster.Resources) int {
	return cmp.Or(cmp.Compare(b.GPU, a.GPU), cmp.Compare(b.GPUMemory, a.GPUMemory))
}

// repair places what a first solution could not place because a device had no room, or was left to another
// tenant.
func (p *Problem) repair(room *placing.Room, placements []placing.Placement) {
	p.repairFor(nil, room, placements)
	if !p.divided {
		return
	}
	for _, tenant := range slices.SortedFunc(maps.Keys(p.shortOfShares()), cluster.Tenant.Compare) {
		p.repairFor(&tenant, room, placements)
	}
}

// repairFor is repair with all GPUs that are left to one tenant left to this one, if it is not nil.
func (p *Problem) repairFor(tenant *cluster.Tenant, room *placing.Room, placements []placing.Placement) {
	for range repairs {
		rest := p.rest(placements)
		rest.only = tenant
		before := count(placements)
		classes, s := rest.Solve(room)
		rest.fill(room, classes, s, placements)
		if count(placements) == before {
			return
		}
	}
}

// repairs bounds the number of repairs. The first mostly suffices: each fills one device of a node.
const repairs = 8

func count(placements []placing.Placement) (n int) {
	for k := range placements {
		n += len(placements[k].Placed)
	}
	return n
}

// rest returns the problem of what placements leave over, on one device of each node.
func (p *Problem) rest(placements []placing.Placement) *Problem {
	demands := slices.Clone(p.Demands)
	for k := range demands {
		d := &demands[k]
		d.Shares = slices.Clone(d.Shares)
		for _, x := range placements[k].Placed {
			d.Need = max(0, d.Need-x.Range.Up)
			for n := range d.Shares {
				if d.Shares[n].has(x.Artefact) {
					d.Shares[n].Need = max(0, d.Shares[n].Need-x.Range.Up)
				}
			}
		}
	}
	rest := New(p.Thrift, demands)
	rest.oneDevice = true
	return rest
}

// free is what patterns may have of a place and these of its devices: all that is free, or not more than
// the emptiest device.
func (p *Problem) free(at *placing.Place, devices []cluster.DeviceRoom) cluster.Resources {
	if len(at.Devices) == 0 || !p.oneDevice && len(devices) == len(at.Devices) {
		return at.Free
	}
	free := at.Free
	_, most := cluster.SumDevices(devices)
	if p.oneDevice {
		emptiest := cluster.DeviceRoom{Free: cluster.Resources{GPU: -1}}
		for i := range devices {
			if d := &devices[i]; d.Lost == "" && cluster.CompareDevices(d, &emptiest) > 0 {
				emptiest = *d
			}
		}
		most = emptiest.Free
	}
	free.GPU, free.GPUMemory = max(0, min(at.Free.GPU, most.GPU)), max(0, min(at.Free.GPUMemory, most.GPUMemory))
	return free
}
