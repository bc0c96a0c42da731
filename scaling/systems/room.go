package systems

import (
	"math"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/otp"
)

// Room is for how many instances with some resources there is room, those that the
// function has now being replaced.
type Room func(cluster.Resources) int

// RoomOn is the room on nodes, on each of which the function's own instances hold what
// held says. Neither is looked at before somebody asks.
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

// bound has each share have as many instances as there is room for, and returns what
// there is none for; that is not considered. Where there is room for none, somebody has to
// make it, and how much that will be nobody knows.
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
		if shares[i].Instances = n; n < 1 {
			shares[i].Batches = nil
		}
	}
	return none
}
