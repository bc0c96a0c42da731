package systems

import (
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
)

// Room returns the number of instances with some resources for which there is room, if they
// replace the function's present ones.
type Room func(cluster.Resources) int

// Held is what an instance holds of a node, and of which device; "" is none.
type Held struct {
	cluster.Resources
	Device string
}

// RoomOn returns the room on nodes for a function that is t. held returns what the function's own instances hold on
// each node; it is called only when the room is needed.
func RoomOn(nodes []cluster.Node, t cluster.Tenant, held func() map[string][]Held) Room {
	var free []cluster.Node
	return func(r cluster.Resources) int {
		if free == nil {
			own := held()
			free = slices.Clone(nodes)
			for i := range free {
				for _, h := range own[free[i].Name] {
					free[i].Drop(h.Resources, h.Device)
				}
			}
		}
		sum := 0
		for i := range free {
			sum += fits(&free[i], r, t)
		}
		return sum
	}
}

// fits is how often r fits on a node, and on its devices that serve a tenant.
func fits(n *cluster.Node, r cluster.Resources, t cluster.Tenant) int {
	most := often(n.Beside(r))
	if n.Devices == nil || r.OnDevice() == (cluster.Resources{}) {
		return most
	}
	sum := 0
	for i := range n.Devices {
		if d := &n.Devices[i]; d.Fits(r) && d.Serves(t) {
			sum += min(often(r.OnDevice(), d.Free), cluster.MaxShares-d.Instances)
		}
	}
	return min(most, sum)
}

// often is how often r fits in free.
func often(r, free cluster.Resources) int {
	most := int64(math.MaxInt32)
	for _, x := range [][2]int64{{int64(free.CPU), int64(r.CPU)}, {int64(free.GPU), int64(r.GPU)}, {free.Memory, r.Memory}, {free.GPUMemory, r.GPUMemory}} {
		if x[1] > 0 {
			most = min(most, max(0, x[0]/x[1]))
		}
	}
	return int(most)
}
