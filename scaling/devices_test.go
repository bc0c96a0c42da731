package scaling

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// machines returns nodes with up to four GPUs each, some of which cannot be shared.
func machines(r *rand.Rand, n int) (all []cluster.Node) {
	for i := range n {
		at := cluster.Node{Name: fmt.Sprint("n", i), Total: cluster.Resources{CPU: 2000 + 1000*r.IntN(14), Memory: 64 << 30}, Devices: []cluster.DeviceRoom{}}
		for k := range r.IntN(5) {
			total := cluster.Resources{GPU: 100, GPUMemory: int64(16+16*r.IntN(4)) << 30}
			at.Devices = append(at.Devices, cluster.DeviceRoom{UUID: fmt.Sprint(at.Name, "-", k), Total: total, Whole: r.IntN(5) == 0})
			at.Total = at.Total.Add(total)
		}
		at.Clear()
		all = append(all, at)
	}
	return all
}

// gpuConfigs returns candidates that run on cores, and on shares of a GPU.
func gpuConfigs(r *rand.Rand) (all []capacity.Candidate) {
	work, memory := 0.5+4*r.Float64(), int64(1+r.IntN(6))<<30
	for b := 1; b <= 16; b *= 2 {
		for _, cpu := range []int{500, 1000, 2000} {
			exec := time.Duration(work * float64(b) * 20 / float64(cpu) * 1000 * float64(time.Millisecond) / 10)
			all = append(all, capacity.Candidate{Config: cluster.Config{Batch: b, Resources: cluster.Resources{CPU: cpu, Memory: 1 << 28}}, Exec: exec})
		}
		for g := 10; g <= 100; g += 10 {
			exec := time.Duration(work * (1 + float64(b)/4) * (0.5 + 30/float64(g)) * float64(time.Millisecond))
			all = append(all, capacity.Candidate{Config: cluster.Config{Batch: b, Resources: cluster.Resources{CPU: 500, GPU: g, Memory: 1 << 28, GPUMemory: memory}}, Exec: exec})
		}
	}
	return all
}

// exceeded returns what is wrong with the instances on the devices, "" if nothing is.
func (w *world) exceeded() string {
	w.settle()
	for _, n := range w.nodes {
		for _, d := range n.Devices {
			switch {
			case d.Free.GPU < 0 || d.Free.GPUMemory < 0:
				return fmt.Sprintf("more than it has of %+v", d)
			case d.Lost != "" && d.Instances > 0:
				return fmt.Sprintf("instances on the lost %+v", d)
			}
		}
	}
	for _, f := range w.functions {
		for _, in := range f.Instances {
			if (in.Device != "") != (in.Config.GPU > 0) {
				return fmt.Sprintf("%v on device %q", in.Config, in.Device)
			}
		}
	}
	return ""
}

// FuzzDevices lets loads come and go on machines with several GPUs, with parking, eviction, exchanges
// and a device that is lost: at no time do instances have more of a device than it has.
func FuzzDevices(f *testing.F) {
	for seed := range uint64(24) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := DefaultSettings()
		s.Stabilisation = 10 * time.Second
		w := newWorld(s)
		w.nodes = machines(r, 1+r.IntN(5))
		for i := range 1 + r.IntN(5) {
			fn := w.function(fmt.Sprint("f", i))
			fn.Queue, fn.SLO, fn.Configs = capacity.Queue(r.IntN(2)), time.Duration(20+r.IntN(200))*time.Millisecond, gpuConfigs(r)
			if r.IntN(3) == 0 {
				fn.Max = 1 + r.IntN(6)
			}
			w.keepAlive[fn.Name], w.parkAfter[fn.Name] = time.Minute, time.Duration(r.IntN(3))*5*time.Second
		}
		for range 60 {
			w.now = w.now.Add(time.Second)
			for _, fn := range w.functions {
				if r.IntN(6) == 0 {
					fn.Rate, fn.Waiting = float64(r.IntN(2))*r.Float64()*6000, r.IntN(2)*r.IntN(4)
				}
			}
			if n := &w.nodes[r.IntN(len(w.nodes))]; r.IntN(30) == 0 && len(n.Devices) > 0 {
				w.lose(n, r.IntN(len(n.Devices)))
			}
			w.scale()
			if wrong := w.exceeded(); wrong != "" {
				t.Fatalf("at %v: %s", w.now.Sub(epoch), wrong)
			}
		}
	})
}

// lose takes a device and its instances away, as a backend does.
func (w *world) lose(n *cluster.Node, device int) {
	d := &n.Devices[device]
	if d.Lost == "" {
		d.Lost = "XID 79"
		n.Total = n.Total.Sub(d.Total)
	}
	for _, f := range w.functions {
		var left []Running
		for _, in := range f.Instances {
			if in.Device != d.UUID {
				left = append(left, in)
			}
		}
		f.Instances = left
	}
}

// A machine with one GPU is planned as the same machine that does not list it: with the same
// instances, one after the other.
func TestOneDeviceIsNone(t *testing.T) {
	for seed := range uint64(20) {
		listed, plain := newWorld(DefaultSettings()), newWorld(DefaultSettings())
		for _, w := range []*world{listed, plain} {
			r := rand.New(rand.NewPCG(seed, 9))
			for i := range 4 {
				at := cluster.Node{Name: fmt.Sprint("n", i), Total: cluster.Resources{CPU: 8000, Memory: 64 << 30, GPU: 100, GPUMemory: 40 << 30}}
				if w == listed {
					at.Devices = []cluster.DeviceRoom{{UUID: at.Name, Total: at.Total.OnDevice()}}
				}
				w.nodes = append(w.nodes, at)
			}
			for i := range 3 {
				fn := w.function(fmt.Sprint("f", i))
				fn.Queue, fn.SLO, fn.Configs = capacity.LateBound, 100*time.Millisecond, gpuConfigs(r)
			}
		}
		r := rand.New(rand.NewPCG(seed, 11))
		for tick := range 40 {
			for i := range 3 {
				rate := r.Float64() * 4000
				listed.functions[i].Rate, plain.functions[i].Rate = rate, rate
			}
			for _, w := range []*world{listed, plain} {
				w.now = w.now.Add(time.Second)
			}
			if a, b := listed.print(listed.scale()), plain.print(plain.scale()); a != b {
				t.Fatalf("tick %d:\n%s\nwithout a list of devices:\n%s", tick, a, b)
			}
		}
	}
}
