package systems

import (
	"math"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/otp"
)

// Room returns the number of instances with some resources for which there is room, if they
// replace the function's present ones.
type Room func(cluster.Resources) int

// RoomOn returns the room on nodes. held returns what the function's own instances hold on
// each node; it is called only when the room is needed.
func RoomOn(nodes []cluster.Node, held func() map[string]cluster.Resources) Room {
	var free []cluster.Resources
	return func(r cluster.Resources) int {
		if free == nil {
			own := held()
			for _, n := range nodes {
				free = append(free, n.Free.Add(own[n.Name]))
			}
		}
		sum := 0
		for _, f := range free {
			sum += fits(f, r)
		}
		return sum
	}
}

// fits is how often r fits in free.
func fits(free, r cluster.Resources) int {
	most := int64(math.MaxInt32)
	for _, x := range [][2]int64{{int64(free.CPU), int64(r.CPU)}, {int64(free.GPU), int64(r.GPU)}, {free.Memory, r.Memory}, {free.GPUMemory, r.GPUMemory}} {
		if x[1] > 0 {
			most = min(most, max(0, x[0]/x[1]))
		}
	}
	return int(most)
}

// bound limits each share's instances to the room for it, and drops the shares without room.
// It returns the resources of those. If no share has room, bound limits none: others must
// make room first, and how much is not known.
func bound(shares []otp.Share, configs []cluster.Config, room Room) (none []cluster.Resources) {
	if room == nil {
		return nil
	}
	rooms := make([]int, len(shares))
	for i, c := range configs {
		if rooms[i] = room(c.Resources); rooms[i] < 1 {
			none = append(none, c.Resources)
		}
	}
	if len(none) == len(shares) {
		return none
	}
	for i, n := range rooms {
		if shares[i].Instances = n * configs[i].Streams(); n < 1 {
			shares[i].Batches = nil
		}
	}
	return none
}
