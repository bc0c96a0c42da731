package scaling

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// mapsFile lets a function's instances map a file.
func mapsFile(f *Function, file string, bytes int64) {
	for i := range f.Configs {
		c := &f.Configs[i].Config
		c.Memory, c.Mapped = c.Memory+bytes, cluster.Mapping{File: file, Bytes: bytes}
	}
}

// overbooked returns the first node that has less memory than instances have of their own and each file
// that they map once, "" if there is none. It does not use what nodes count.
func overbooked(nodes []cluster.Node, instances []Running) string {
	for _, n := range nodes {
		sum, files := int64(0), map[cluster.Mapping]bool{}
		for _, in := range instances {
			if in.Node == n.Name {
				sum += in.Config.Memory - in.Config.Mapped.Bytes
				files[in.Config.Mapped] = true
			}
		}
		for f := range files {
			sum += f.Bytes
		}
		if sum > n.Total.Memory {
			return fmt.Sprintf("%s has %d MiB, and instances take %d", n.Name, n.Total.Memory>>20, sum>>20)
		}
	}
	return ""
}

// FuzzMapped drives the engine over functions whose instances map files, some the same, while loads and
// revisions change and instances disappear. No node ever gives more memory than it has, not while those
// that stop are still there either.
func FuzzMapped(f *testing.F) {
	for seed := range uint64(24) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 11))
		w := randomWorld(r)
		for i := range w.nodes {
			w.nodes[i].Total.Memory += 1 << 29
		}
		for _, f := range w.functions {
			if r.IntN(4) > 0 {
				mapsFile(f, []string{"a", "b"}[r.IntN(2)], 300<<20)
			}
		}
		for range 40 {
			w.change(r)
			w.now = w.now.Add(time.Duration(100+r.IntN(20_000)) * ms)
			w.settle()
			functions, _ := w.shuffled(r)
			var before []Running
			for _, f := range w.functions {
				before = append(before, f.Instances...)
			}
			plan := w.scale()
			w.check(t, plan, functions)
			for _, s := range plan.Start {
				if len(s.After) == 0 {
					before = append(before, Running{Node: s.Node, Config: s.Config})
				}
			}
			var after []Running
			for _, f := range w.functions {
				after = append(after, f.Instances...)
			}
			for when, all := range map[string][]Running{"before the stops": before, "after": after} {
				if why := overbooked(w.nodes, all); why != "" {
					t.Fatalf("%s: %s\n%s", when, why, w.print(plan))
				}
			}
		}
	})
}

// placedOf2GiB is how many instances a plan starts on a node of 2 GiB, under more load than it can carry.
func placedOf2GiB(o capacity.Options, queue capacity.Queue, mapped int64) (n int) {
	s := DefaultSettings()
	s.Options = o
	w := newWorld(s)
	w.nodes = append(w.nodes, node("n", 16_000, 0, 2<<30))
	f := w.function("resnet-50")
	f.SLO, f.Queue, f.Rate, f.Waiting = 200*ms, queue, 10_000, 1
	c := config(1, 250, 0, 50*ms)
	c.Config.Memory = 256<<20 - mapped
	f.Configs = append(f.Configs, c)
	mapsFile(f, "resnet-50", mapped)
	for range 20 {
		w.now = w.now.Add(time.Second)
		w.scale()
	}
	return len(f.Instances)
}

// TestInstancesThatFit2GiB says how many instances of ResNet-50 a node of 2 GiB gets, if each counts
// 256 MiB and if they map the same 98 MiB of these: (2048 − 98)/158 = 12.
func TestInstancesThatFit2GiB(t *testing.T) {
	for name, o := range map[string]capacity.Options{"joint": capacity.Production(), "greedy": capacity.Greedy()} {
		if each, once := placedOf2GiB(o, capacity.LateBound, 0), placedOf2GiB(o, capacity.LateBound, 98<<20); each != 8 || once != 12 {
			t.Errorf("%s: %d instances fit that count all for themselves, want 8, and %d that map the same weights, want 12", name, each, once)
		}
	}
	if once := placedOf2GiB(capacity.Faithful(), capacity.PerInstance, 98<<20); once != 12 {
		t.Errorf("with a queue per instance %d fit", once)
	}
}

// A stopped instance gives back the weights with the last that maps them only: beside a twin, another
// function finds less room.
func TestLastInstanceFreesWeights(t *testing.T) {
	for _, c := range []struct {
		twins int
		fits  bool
	}{{1, true}, {2, false}} {
		w := newWorld(DefaultSettings())
		w.nodes = append(w.nodes, node("n", 4000, 0, 512<<20))
		old := w.function("old")
		x := config(1, 1000, 0, 50*ms)
		x.Config.Memory = 100 << 20
		old.Configs, old.Queue, old.SLO, old.Max = append(old.Configs, x), capacity.LateBound, 200*ms, 2
		mapsFile(old, "w", 200<<20)
		for i := range c.twins {
			old.Instances = append(old.Instances, Running{
				ID: cluster.InstanceID(fmt.Sprint("old-", i)), Node: "n", Config: old.Configs[0].Config, Exec: 50 * ms, Mean: 50 * ms, Revision: 1, State: cluster.Ready,
			})
		}
		if old.Min = c.twins - 1; old.Min > 0 {
			old.ScaleToZero = false
		}
		w.active["old"], w.keepAlive["old"] = w.now, time.Minute
		fresh := w.function("new")
		fresh.Configs, fresh.Queue, fresh.SLO, fresh.Max = []capacity.Candidate{config(1, 1000, 0, 50*ms)}, capacity.LateBound, 200*ms, 1
		fresh.Configs[0].Config.Memory = 400 << 20
		for range 3 {
			w.now = w.now.Add(time.Hour)
			w.scale()
		}
		if len(old.Instances) != c.twins-1 {
			t.Fatalf("%d of %d instances are left", len(old.Instances), c.twins)
		}
		fresh.Waiting = 1
		w.now = w.now.Add(time.Second)
		if w.scale(); slices.ContainsFunc(fresh.Instances, func(in Running) bool { return in.Node == "n" }) != c.fits {
			t.Errorf("of %d twins one is stopped, and the other function gets %+v", c.twins, fresh.Instances)
		}
	}
}

// older is the memory of instances that an earlier version started, of which they map nothing together.
var older = cluster.Resources{Memory: 547 << 20}

// Instances keep the memory with which they started. They are resized, merged, woken with less and kept like
// those with the memory of new ones, and the node has as much memory afterwards as before.
func TestInstancesKeepTheirMemory(t *testing.T) {
	configs := []capacity.Candidate{config(1, 250, 0, 29*ms), config(1, 500, 0, 12*ms), config(4, 500, 0, 33*ms), config(4, 750, 0, 22*ms), config(8, 1000, 0, 27*ms)}
	for _, c := range []struct {
		name   string
		cpu    int // of the node
		live   []int
		parked bool
		want   string
	}{
		{"raise", 2000, []int{0}, false, "1 with [750]"},
		{"merge", 1000, []int{0, 0, 2}, false, "2 with [500 500]"},
		{"wake", 500, []int{4}, true, "1 with [500]"},
	} {
		w := newWorld(DefaultSettings())
		w.nodes = []cluster.Node{node("a", c.cpu, 0, 8000<<20)}
		f := w.function("f")
		f.SLO, f.Queue, f.Configs, f.Rate, f.Max = 50*ms, capacity.LateBound, slices.Clone(configs), 50, len(c.live)
		f.Level = 6 // What the steering asks for, beyond the load: nothing is exchanged for that.
		mapsFile(f, "w", 105<<20)
		for i, k := range c.live {
			in := Running{ID: cluster.InstanceID(fmt.Sprint("i", i)), Node: "a", Config: configs[k].Config, Largest: 16, Exec: configs[k].Exec, Revision: 1, State: cluster.Ready, Parked: c.parked}
			in.Config.Memory = older.Memory
			f.Instances = append(f.Instances, in)
		}
		if c.parked {
			f.Waiting, f.Rate = 1, 10
		}
		starts := 0
		for range 30 {
			w.now = w.now.Add(100 * time.Millisecond)
			starts += len(w.scale().Start)
		}
		var cpu []int
		for _, in := range f.Instances {
			if cpu = append(cpu, in.Config.CPU); in.Config.Memory != older.Memory || in.Config.Mapped.Bytes > 0 || in.Parked {
				t.Errorf("%s: %+v", c.name, in.Config)
			}
		}
		if got := fmt.Sprintf("%d with %v", len(cpu), cpu); got != c.want || starts > 0 {
			t.Errorf("%s: %s and %d starts, want %s", c.name, got, starts, c.want)
		}
	}
}

// A fresh placement has an instance with other memory, unless there is no room for the rest beside it.
func TestMatchedWithOtherMemory(t *testing.T) {
	c := config(4, 500, 0, 33*ms)
	in := Running{ID: "i", Node: "a", Config: c.Config, Largest: 4}
	in.Config.Memory = older.Memory
	if got := in.best([]capacity.Choice{{Candidate: c, Range: capacity.Range{Up: 1}}}); got.Exec != c.Exec || got.Config != in.Config {
		t.Errorf("the best is %+v", got)
	}
	for exactly, want := range map[bool]int{false: 1, true: 0} {
		if stay, missing := matched([]Running{in}, []placing.Placed{{Candidate: c, Node: "a"}}, exactly); len(stay) != want || len(missing) != 1-want {
			t.Errorf("exactly: %v: %d stay and %d are missing", exactly, len(stay), len(missing))
		}
	}
}

// An idle instance whose file others map frees only its own part, so it is worth more than one that frees all.
func TestWorthOfMapped(t *testing.T) {
	held := cluster.Resources{Memory: 2 << 30, Mapped: cluster.Mapping{File: "w", Bytes: 1 << 30}}
	in := &Running{Node: "a", Config: cluster.Config{Resources: held}, Parked: true}
	n := cluster.Node{Name: "a", Total: cluster.Resources{CPU: 1000, Memory: 8 << 30}}
	n.Free = n.Total
	for _, c := range []struct {
		instances, others int
		want              float64
	}{{1, 0, 0.25}, {2, 0, 0.125}, {1, 1, 0.125}} {
		n.Mapped = []cluster.MappedFile{{Mapping: held.Mapped, Instances: c.instances, Others: c.others}}
		if got := size(in, func(string) *cluster.Node { return &n }); got != c.want {
			t.Errorf("one of %d and %d others: %v, want %v", c.instances, c.others, got, c.want)
		}
	}
}
