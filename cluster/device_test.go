package cluster

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

func gpus(free ...int) (all []DeviceRoom) {
	for i, n := range free {
		all = append(all, DeviceRoom{UUID: string(rune('a' + i)), Total: Resources{GPU: 100, GPUMemory: 80}, Free: Resources{GPU: n, GPUMemory: 80}})
	}
	return all
}

func TestBestDevice(t *testing.T) {
	whole, mig, lost, crowded, small := gpus(100), gpus(42), gpus(100, 20), gpus(90, 100), gpus(50, 50)
	whole[0].Whole = true
	mig[0].Whole, mig[0].Total.GPU = true, 42
	lost[0].Lost = "XID 79"
	crowded[0].Instances = MaxShares
	small[1].Free.GPUMemory = 40
	for _, c := range []struct {
		name    string
		devices []DeviceRoom
		need    Resources
		want    int
	}{
		{"the fullest with room", gpus(100, 40, 60), Resources{GPU: 50}, 2},
		{"as full: the one with less memory", small, Resources{GPU: 50, GPUMemory: 30}, 1},
		{"memory counts", small, Resources{GPU: 50, GPUMemory: 41}, 0},
		{"40 % of each of two are no 50 %", gpus(40, 40), Resources{GPU: 50}, -1},
		{"a device that is not shared takes no part", whole, Resources{GPU: 90}, -1},
		{"but a whole share", whole, Resources{GPU: 100}, 0},
		{"a MIG instance the largest share that it can", mig, Resources{GPU: 40}, 0},
		{"and no smaller one", mig, Resources{GPU: 30}, -1},
		{"a lost device takes nothing", lost, Resources{GPU: 30}, -1},
		{"MPS serves only so many", crowded, Resources{GPU: 10}, 1},
	} {
		if got := BestDevice(c.devices, c.need, Tenant{}); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// What is held and dropped again leaves a node as it was, copies of a node are independent, and a
// node fits what it starts.
func TestNodesWithDevices(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		n := Node{Name: "n", Total: Resources{CPU: 9000, GPU: 300, GPUMemory: 240}, Devices: gpus(100, 100, 100)}
		n.Clear()
		type held struct {
			Resources
			device string
		}
		var all []held
		for range 40 {
			before, need := n, Resources{CPU: r.IntN(500), GPU: r.IntN(11) * 10, GPUMemory: r.Int64N(30)}
			fits := n.Fits(need, Tenant{})
			if !fits {
				continue
			}
			device := n.Start(need, Tenant{})
			if (device != "") != (need.OnDevice() != Resources{}) {
				t.Fatalf("%+v is on device %q", need, device)
			}
			for _, d := range n.Devices {
				if d.Free.GPU < 0 || d.Free.GPUMemory < 0 {
					t.Fatalf("%+v", d)
				}
			}
			after := n
			n.Drop(need, device)
			if !n.Same(&before) {
				t.Fatalf("%+v, before %+v", n, before)
			}
			n, all = after, append(all, held{need, device})
		}
		for _, h := range all {
			n.Change(Resources{GPU: -h.GPU}, h.device) // It is parked.
			if !n.FitsOn(Resources{GPU: h.GPU}, h.device) {
				t.Fatalf("no room for what %+v gave back: %+v", h, n)
			}
			n.Drop(Resources{CPU: h.CPU, GPUMemory: h.GPUMemory}, h.device)
		}
		fresh := n
		if fresh.Clear(); !n.Same(&fresh) {
			t.Fatalf("%+v, want %+v", n, fresh)
		}
	}
}

// A process gets whole devices on which nothing is, and nothing of them is left.
func TestWholeDevices(t *testing.T) {
	n := Node{Name: "n", Total: Resources{CPU: 9000, GPU: 300, GPUMemory: 240}, Devices: gpus(100, 100, 100)}
	n.Clear()
	n.Hold(Resources{GPU: 10, GPUMemory: 5}, "a")
	if got := n.Empty(2); !reflect.DeepEqual(got, []string{"b", "c"}) || n.Empty(3) != nil {
		t.Fatalf("%v, %v", got, n.Empty(3))
	}
	s := InstanceSpec{Kind: Process, Devices: n.Empty(1), Config: Config{Resources: Resources{CPU: 100, GPU: 100}}}
	other := n
	n.Take(&s, s.Holds())
	if n.Free != (Resources{CPU: 8900, GPU: 190, GPUMemory: 155}) || n.Fits(Resources{GPU: 95}, Tenant{}) != true || n.Devices[1].Free != (Resources{}) {
		t.Errorf("%+v", n)
	}
	yield(&other, s, InstanceSpec{Devices: []string{"c"}, Config: Config{Resources: Resources{GPU: 30, GPUMemory: 10}}})
	other.Clear()
	if other.Free != (Resources{CPU: 8900, GPU: 170, GPUMemory: 150}) || other.Devices[1].Free != (Resources{}) || other.Devices[2].Free != (Resources{GPU: 70, GPUMemory: 70}) || len(other.Empty(1)) != 1 {
		t.Errorf("beside others: %+v", other)
	}
}

// Instances that share a claim of a GPU are in one namespace. Others may have it once a plan stops the last
// of them, and not while they stay.
func TestClaimedDevices(t *testing.T) {
	whole := Resources{GPU: 100}
	n := Node{Total: Resources{CPU: 8000, GPU: 200}, Free: Resources{CPU: 8000, GPU: 150}, Devices: []DeviceRoom{
		{UUID: "a", Total: whole, Free: Resources{GPU: 50}, Instances: 1, Claimed: true, Namespace: "one"},
		{UUID: "b", Total: whole, Free: whole, Claimed: true},
	}}
	need := Resources{CPU: 1000, GPU: 50}
	if device := n.Start(need, Tenant{Namespace: "two"}); device != "b" || n.Devices[1].Namespace != "two" {
		t.Errorf("it starts on %q: %+v", device, n.Devices)
	}
	if device := n.Start(need, Tenant{Namespace: "one"}); device != "a" {
		t.Errorf("beside its namespace it starts on %q", device)
	}
	if n.Fits(need, Tenant{Namespace: "one"}) || !n.Fits(need, Tenant{Namespace: "two"}) {
		t.Errorf("one has room in %+v", n.Devices)
	}
	n.Drop(need, "b")
	if !n.Fits(need, Tenant{Namespace: "one"}) {
		t.Errorf("what is vacated belongs to nobody: %+v", n.Devices)
	}
	n.Hold(need, "b")
	if n.Fits(need, Tenant{Namespace: "one"}) || n.Devices[1].Namespace != "two" {
		t.Errorf("it stays after all: %+v", n.Devices)
	}
	n.Drop(need, "b")
	if n.Start(need, Tenant{Namespace: "three"}) != "b" || n.Fits(need, Tenant{Namespace: "two"}) || !n.Fits(need, Tenant{Namespace: "three"}) {
		t.Errorf("who takes it has it: %+v", n.Devices)
	}
}
