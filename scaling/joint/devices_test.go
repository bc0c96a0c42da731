package joint

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// withGPUs lists the GPUs of nodes whose sum is that many.
func withGPUs(all []cluster.Node) []cluster.Node {
	for i := range all {
		n := &all[i]
		for k := range n.Total.GPU / 100 {
			d := cluster.Resources{GPU: 100}
			n.Devices = append(n.Devices, cluster.DeviceRoom{UUID: fmt.Sprint(n.Name, "-", k), Total: d, Free: d})
		}
	}
	return all
}

// Three shares of 60 % are less than two GPUs together, but only two fit. The rest is packed
// into what the GPUs have left.
func TestSharesThatFitOnlyInSum(t *testing.T) {
	large, small := choice(500, 60, 10), choice(500, 40, 6)
	for _, c := range []struct {
		need  float64
		nodes int
		want  placing.Reason
	}{{30, 1, placing.None}, {32, 1, placing.None}, {33, 1, placing.NoRoom}, {60, 2, placing.None}} {
		room := placing.New(withGPUs(nodes(c.nodes, 16000, 200)), options)
		got := New(Thrift{}, []Demand{demand(c.need, large, small)}).Place(room)
		if got[0].Reason != c.want {
			t.Errorf("%v requests/s on %d nodes: %s", c.need, c.nodes, show(got))
		}
		for _, x := range got[0].Placed {
			if x.Device == "" {
				t.Errorf("%v has no device", x.Config)
			}
		}
	}
	// No choice fits on a device that is half full, although the sum is enough.
	all := withGPUs(nodes(1, 16000, 200))
	all[0].Free.GPU = 100
	all[0].Devices[0].Free.GPU, all[0].Devices[1].Free.GPU = 50, 50
	got := New(Thrift{}, []Demand{demand(10, large)}).Place(placing.New(all, options))
	if got[0].Reason != placing.NoRoom || len(got[0].Placed) != 0 {
		t.Errorf("%s", show(got))
	}
}

// FuzzPlaceOnDevices packs random demands into nodes with GPUs: none has more than it has.
func FuzzPlaceOnDevices(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 5))
		all := withGPUs(nodes(1+r.IntN(4), 1000*(1+r.IntN(8)), 100*r.IntN(5)))
		var demands []Demand
		for range 1 + r.IntN(4) {
			d := demand(r.ExpFloat64() * 100)
			for range 1 + r.IntN(6) {
				c := choice(250*(1+r.IntN(8)), 10*r.IntN(11), 1+r.ExpFloat64()*30)
				d.Choices, d.Configs = append(d.Choices, c), append(d.Configs, c.Candidate)
			}
			demands = append(demands, d)
		}
		again := placing.New(all, options)
		for _, p := range New(Thrift{}, demands).Place(placing.New(all, options)) {
			for _, x := range p.Placed {
				i, _ := again.Find(x.Node)
				again.Hold(i, x.Config.Resources, x.Device)
				if free := again.Places[i].Free; !(cluster.Resources{}).Fits(free) {
					t.Fatalf("%+v is free on %s", free, x.Node)
				}
				for _, d := range again.Places[i].Devices {
					if d.Free.GPU < 0 || (x.Device == "") != (x.Config.GPU == 0) {
						t.Fatalf("%v on %q: %+v", x.Config, x.Device, d)
					}
				}
			}
		}
	})
}
