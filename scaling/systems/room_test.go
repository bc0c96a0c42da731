package systems

import (
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
)

// The room on each node follows from its scarcest resource, with what the function's
// own instances hold.
func TestRoomOn(t *testing.T) {
	nodes := []cluster.Node{
		{Name: "a", Free: cluster.Resources{CPU: 3000, Memory: 10 << 30}},
		{Name: "b", Free: cluster.Resources{CPU: 500, Memory: 1 << 30, GPU: 50}},
		{Name: "c", Free: cluster.Resources{CPU: -100, Memory: 1 << 30}},
		{Name: "d", Free: cluster.Resources{CPU: 900, GPU: 120}, Devices: []cluster.DeviceRoom{
			{UUID: "x", Free: cluster.Resources{GPU: 30}}, {UUID: "y", Free: cluster.Resources{GPU: 90}}, {UUID: "z", Free: cluster.Resources{GPU: 100}, Lost: "XID 79"}}},
	}
	room := RoomOn(nodes, cluster.Tenant{}, func() map[string][]Held {
		return map[string][]Held{"b": {{cluster.Resources{CPU: 1500, Memory: 1 << 30}, ""}}, "d": {{cluster.Resources{GPU: 20}, "x"}}}
	})
	for _, c := range []struct {
		r    cluster.Resources
		want int
	}{
		{cluster.Resources{CPU: 1000, Memory: 1 << 30}, 5}, {cluster.Resources{CPU: 250, Memory: 2 << 30}, 6},
		{cluster.Resources{CPU: 4000}, 0}, {cluster.Resources{CPU: 1000, GPU: 20}, 2},
		// 50 % of x are free once the function's own are gone, and 90 % of y: of 60 % only one fits.
		{cluster.Resources{CPU: 100, GPU: 60}, 1}, {cluster.Resources{CPU: 100, GPU: 50}, 3},
	} {
		if got := room(c.r); got != c.want {
			t.Errorf("%+v fits %d times, want %d", c.r, got, c.want)
		}
	}
}
