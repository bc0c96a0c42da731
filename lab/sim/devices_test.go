package sim

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// onGPUs is a model whose instances take memory of a GPU, on shares of up to all of it.
type onGPUs struct {
	model
	memory int64
}

func (m onGPUs) Configs() (configs []cluster.Config) {
	for _, c := range m.model.Configs() {
		if c.GPU > 0 {
			c.GPUMemory = m.memory
		}
		configs = append(configs, c)
		if c.GPU == 40 {
			c.GPU = 100
			configs = append(configs, c)
		}
	}
	return configs
}

// books are production's accounts of a cluster: of each node, what its backend reads of the machine and
// what the instances hold that it started.
type books struct {
	nodes map[string]*account
	// placed counts the instances with a share.
	placed int
}

type account struct {
	inventory gpu.Inventory
	held      map[cluster.InstanceID]gpu.Held
}

// bookkeeper is a scaler that lets production's accounts follow the simulation. Before each pass they
// must offer the same nodes to the scheduler. For each instance that has begun, production must choose
// the device that the plan named.
type bookkeeper struct {
	systems.Scaler
	t    *testing.T
	run  *run
	seed uint64
	books
}

// Scale implements [systems.Scaler].
func (b *bookkeeper) Scale(now time.Time, functions []scaling.Function, nodes []cluster.Node) scaling.Plan {
	b.follow()
	for i := range nodes {
		if got, want := b.offer(&nodes[i]), &nodes[i]; !slices.Equal(got, want.Devices) {
			b.t.Fatalf("cluster %d at %v: production has %+v on %s, the simulation %+v", b.seed, now.Sub(TimeAt(0)), got, want.Name, want.Devices)
		}
		if total, free := cluster.SumDevices(nodes[i].Devices); total.GPU != nodes[i].Total.GPU || free.GPU != nodes[i].Free.GPU || free.GPUMemory != nodes[i].Free.GPUMemory {
			b.t.Fatalf("cluster %d: %+v is not the sum of its devices", b.seed, nodes[i])
		}
	}
	return b.Scaler.Scale(now, functions, nodes)
}

// follow brings the accounts to what has begun, ended, been parked or come back, in the order of starts.
func (b *bookkeeper) follow() {
	for _, a := range b.nodes {
		maps.DeleteFunc(a.held, func(id cluster.InstanceID, _ gpu.Held) bool { return b.run.instances[id] == nil })
	}
	all := slices.SortedFunc(maps.Values(b.run.instances), func(x, y *instance) int { return cmp.Compare(x.number, y.number) })
	for _, in := range all {
		a := b.nodes[b.run.nodes[in.node].Name]
		if !in.begun || in.Config.GPU == 0 {
			continue
		}
		if h, known := a.held[in.ID]; known {
			h.Percent = in.holds.GPU
			a.held[in.ID] = h
		}
	}
	for _, in := range all {
		a := b.nodes[b.run.nodes[in.node].Name]
		if _, known := a.held[in.ID]; known || !in.begun || in.Config.GPU == 0 {
			continue
		}
		share, err := a.inventory.Place(slices.Collect(maps.Values(a.held)), in.Device(), in.Config.GPU, in.Config.GPUMemory)
		if err != nil || share.Device != in.Device() {
			b.t.Fatalf("cluster %d: production places %s with %v on %q, the simulation on %q: %v", b.seed, in.ID, in.Config, share.Device, in.Device(), err)
		}
		a.held[in.ID] = gpu.Held{Device: share.Device, Percent: in.holds.GPU, Memory: in.holds.GPUMemory}
		b.placed++
	}
}

// offer is what production tells the scheduler of a node's devices: what the backend says, less the
// claims of instances that wait for others to leave.
func (b *bookkeeper) offer(n *cluster.Node) []cluster.DeviceRoom {
	a := b.nodes[n.Name]
	seen := cluster.Node{Devices: a.inventory.Rooms(slices.Collect(maps.Values(a.held)))}
	for _, in := range b.run.instances {
		if b.run.nodes[in.node].Name != n.Name || !in.claimed {
			continue
		}
		if in.begun { // It claims more than it holds while it waits to take its share again.
			seen.Change(in.claims.Sub(in.holds).OnDevice(), in.Device())
		} else {
			seen.Hold(in.claims.OnDevice(), in.Device())
		}
	}
	return seen.Devices
}

// On 50 random clusters, production's accounts of GPUs and its choice of devices equal the simulator's,
// instance by instance, with every scheduler: the same scaling code then plans the same.
func TestProductionPlacesAsTheSimulator(t *testing.T) {
	placed, names := 0, baselines.Names()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 22))
		name := systems.Default
		if seed%3 == 2 {
			name = names[random.IntN(len(names))]
		}
		s := anything(random, system(t, name))
		s.Fluid, s.Nodes = false, nil
		s.Duration, s.Warmup, s.Tick = min(s.Duration, 3*time.Second), 0, 500*ms
		s.Functions = s.Functions[:min(3, len(s.Functions))]
		inventories := map[string]gpu.Inventory{}
		for i := range 1 + random.IntN(5) {
			n := cluster.Node{Name: fmt.Sprint("n", i), Total: cluster.Resources{CPU: 1000 * (2 + random.IntN(6)), Memory: 64 << 30}}
			inventory := gpu.Inventory{Sharing: gpu.MPS, PipeDirectory: "/run/mps"}
			for k := range 1 + random.IntN(4) {
				d := gpu.Device{Index: k, UUID: fmt.Sprint(n.Name, "-gpu", k), Memory: int64(8+8*random.IntN(4)) << 30, Whole: random.IntN(5) == 0}
				if d.Whole && random.IntN(2) == 0 { // A MIG instance.
					d.Percent = 14 * (1 + random.IntN(4))
				}
				inventory.Devices = append(inventory.Devices, d)
			}
			n.Devices = inventory.Rooms(nil)
			total, _ := cluster.SumDevices(n.Devices)
			n.Total = n.Total.Add(total)
			s.Nodes = append(s.Nodes, n)
			inventories[n.Name] = inventory
		}
		for i := range s.Functions {
			f := &s.Functions[i]
			slow := f.Times.(model)
			slow.each *= 8
			f.Times, f.SLO = onGPUs{slow, int64(1+random.IntN(10)) << 30}, max(f.SLO, 300*ms)
		}
		if err := s.fill(); err != nil {
			t.Fatal(err)
		}
		r, err := newRun(&s)
		if err != nil {
			t.Fatal(err)
		}
		keeper := &bookkeeper{r.engine, t, r, seed, books{nodes: map[string]*account{}}}
		for name, inventory := range inventories {
			keeper.nodes[name] = &account{inventory, map[cluster.InstanceID]gpu.Held{}}
		}
		r.engine = keeper
		if err := r.loop(t.Context()); err != nil {
			t.Fatalf("cluster %d, %s: %v", seed, name, err)
		}
		placed += keeper.placed
	}
	if placed < 200 {
		t.Errorf("only %d instances had shares of GPUs", placed)
	}
	t.Logf("%d instances with shares of GPUs", placed)
}
