package placing

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// withDevices lists GPUs on nodes, some of which are lost, cannot be shared or are in use.
func withDevices(r *rand.Rand, nodes []cluster.Node) []cluster.Node {
	for i := range nodes {
		n := &nodes[i]
		n.Devices = []cluster.DeviceRoom{}
		for k := range r.IntN(5) {
			total := cluster.Resources{GPU: 100, GPUMemory: 1 + r.Int64N(80)}
			d := cluster.DeviceRoom{UUID: fmt.Sprint(n.Name, "-", k), Total: total, Free: total, Whole: r.IntN(6) == 0}
			if r.IntN(6) == 0 {
				d.Lost = "XID 79"
			}
			if r.IntN(3) == 0 {
				d.Free, d.Instances = cluster.Resources{GPU: r.IntN(101), GPUMemory: r.Int64N(total.GPUMemory + 1)}, 1+r.IntN(cluster.MaxShares)
			}
			n.Devices = append(n.Devices, d)
		}
		total, free := cluster.SumDevices(n.Devices)
		n.Total.GPU, n.Total.GPUMemory, n.Free.GPU, n.Free.GPUMemory = total.GPU, total.GPUMemory, free.GPU, free.GPUMemory
	}
	return nodes
}

// FuzzDevices places on nodes with several GPUs: each share is of one device, none has more than
// that has, lost ones get nothing, and those that cannot be shared one instance.
func FuzzDevices(f *testing.F) {
	for seed := range uint64(64) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 3))
		d, nodes, o := scenario(r)
		nodes = withDevices(r, nodes)
		for i := range d.Configs {
			c := &d.Configs[i].Config
			if c.GPU = r.IntN(11) * 10; c.GPU > 0 {
				c.GPUMemory = r.Int64N(40)
			}
		}
		p := Schedule(d, nodes, o)
		room := New(nodes, o)
		for _, x := range p.Placed {
			i, _ := room.Find(x.Node)
			at, need := &room.Places[i], x.Config.Resources
			if (x.Device != "") != (need.OnDevice() != cluster.Resources{}) {
				t.Fatalf("%+v is on device %q of %s", need, x.Device, x.Node)
			}
			for k := range at.Devices {
				if d := &at.Devices[k]; d.UUID == x.Device && !d.Fits(need) {
					t.Fatalf("%+v on %+v", need, *d)
				}
			}
			if !at.Fits(need, cluster.Tenant{}) {
				t.Fatalf("%+v on %+v", need, at.Node)
			}
			room.Hold(i, need, x.Device)
		}
		if p.Reason == NoRoom && d.Limit == 0 {
			if choices := o.Choices(capacity.Demand{RPS: p.Residual, SLO: d.SLO, Queue: d.Queue, Configs: d.Configs}); room.Fits(choices, Allowed{}) {
				t.Fatalf("%v requests/s have no room, but there is some", p.Residual)
			}
		}
		r.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		if again := Schedule(d, nodes, o); !reflect.DeepEqual(p, again) {
			t.Fatalf("shuffled nodes:\n%v\n%v", show(p), show(again))
		}
	})
}

// Of two nodes with 80 % free, the one whose GPU has it in one piece gets an instance with 60 %.
func TestShareOfOneDevice(t *testing.T) {
	split, one := node("a", 4000, 80, 8<<30), node("b", 4000, 80, 8<<30)
	split.Devices = []cluster.DeviceRoom{{UUID: "a0", Total: cluster.Resources{GPU: 100}, Free: cluster.Resources{GPU: 40}}, {UUID: "a1", Total: cluster.Resources{GPU: 100}, Free: cluster.Resources{GPU: 40}}}
	one.Devices = []cluster.DeviceRoom{{UUID: "b0", Total: cluster.Resources{GPU: 100}, Free: cluster.Resources{GPU: 80}}}
	for _, placement := range []capacity.Placing{capacity.BestFit, capacity.Spread} {
		o := capacity.Greedy()
		o.Placement = placement
		d := capacity.Demand{RPS: 1, SLO: 100 * ms, Configs: []capacity.Candidate{config(1, 500, 60, 10*ms)}}
		if p := Schedule(d, []cluster.Node{split, one}, o); len(p.Placed) != 1 || p.Placed[0].Device != "b0" {
			t.Errorf("%v: %+v", placement, p)
		}
		if p := Schedule(d, []cluster.Node{split}, o); p.Reason != NoRoom {
			t.Errorf("%v: %+v", placement, p)
		}
	}
}

// Algorithm 1 leaves a GPU to the namespace whose instances have its claim.
func TestClaimedByAnotherNamespace(t *testing.T) {
	whole := cluster.Resources{GPU: 100}
	nodes := []cluster.Node{
		{Name: "a", Total: cluster.Resources{CPU: 8000, Memory: 1 << 30, GPU: 100}, Free: cluster.Resources{CPU: 8000, Memory: 1 << 30, GPU: 60},
			Devices: []cluster.DeviceRoom{{UUID: "a0", Total: whole, Free: cluster.Resources{GPU: 60}, Instances: 1, Claimed: true, Namespace: "one"}}},
		{Name: "b", Total: cluster.Resources{CPU: 8000, Memory: 1 << 30, GPU: 100}, Free: cluster.Resources{CPU: 8000, Memory: 1 << 30, GPU: 100},
			Devices: []cluster.DeviceRoom{{UUID: "b0", Total: whole, Free: whole, Claimed: true}}},
	}
	share := capacity.Candidate{Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 1000, GPU: 50}}, Exec: 10 * ms}
	for namespace, want := range map[string]string{"one": "a", "two": "b"} {
		d := capacity.Demand{RPS: 1, SLO: 100 * ms, Queue: capacity.LateBound, Configs: []capacity.Candidate{share}, Tenant: cluster.Tenant{Namespace: namespace}}
		room := New(nodes, capacity.Options{})
		p := room.Schedule(d, 0)
		if len(p.Placed) != 1 || p.Placed[0].Node != want {
			t.Errorf("%s: %+v", namespace, p)
		}
		d.RPS = 1000
		if p := room.Schedule(d, 0); namespace == "two" && len(p.Placed) != 1 {
			t.Errorf("two has %d more on a GPU of one", len(p.Placed))
		}
	}
}
