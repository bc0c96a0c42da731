package nodes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// node is a node with 4 cores and 16 GB, of which instances hold these cores.
func node(name string, cores ...float64) Node {
	n := Node{Name: name, Total: cluster.Resources{CPU: 4000, Memory: 16 << 30}}
	for _, c := range cores {
		n.Instances = append(n.Instances, Instance{Holds: cluster.Resources{CPU: int(1000 * c), Memory: 1 << 20}})
	}
	return n
}

// gpu is a node with a GPU, of which instances hold these parts in percent.
func gpu(name string, shares ...int) Node {
	n := node(name)
	n.Total.GPU = 100
	for _, s := range shares {
		n.Instances = append(n.Instances, Instance{Holds: cluster.Resources{CPU: 100, GPU: s}})
	}
	return n
}

func is(state string, n Node) Node {
	n.Overloaded, n.Interfered = state == "overloaded", state == "interfered"
	return n
}

// script drives a scaler.
type script struct {
	t   *testing.T
	now time.Time
	*Scaler
	cpu, gpu Wanted
}

func newScript(t *testing.T) *script {
	return &script{t: t, now: time.Unix(1_000_000, 0), Scaler: New(Default())}
}

// look looks every two seconds for d.
func (s *script) look(d time.Duration, all ...Node) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.now = s.now.Add(2 * time.Second)
		out := s.Look(s.now, all)
		s.cpu, s.gpu = out[0], out[1]
	}
}

func (s *script) want(what string, cpu, gpu int) {
	s.t.Helper()
	if s.cpu.Count != cpu || s.gpu.Count != gpu {
		s.t.Errorf("%s: %+v, %+v; want %d and %d", what, s.cpu, s.gpu, cpu, gpu)
	}
	for _, w := range []Wanted{s.cpu, s.gpu} {
		if (w.Why == "") != (w.Count == w.Present) {
			s.t.Errorf("%s: %+v has no reason, or one too many", what, w)
		}
	}
}

// §4.2.3, rule 1: the utilization of a resource exceeds 80 % across all workers.
func TestSection423Rule1Utilization(t *testing.T) {
	s := newScript(t)
	s.look(4*time.Second, node("a", 3.3), node("b", 3.5))
	s.want("for 4 s", 2, 0)
	s.look(4*time.Second, node("a", 3.3), node("b", 3.5))
	s.want("82.5 and 87.5 %", 3, 0)
	if s.cpu.Size != node("a").Total || s.gpu.Size != (cluster.Resources{}) {
		t.Errorf("the sizes are %+v and %+v", s.cpu.Size, s.gpu.Size)
	}
	s.look(time.Hour, node("a", 3.3), node("b", 3.5))
	s.want("while it boots, no second one", 3, 0)
	s.look(time.Minute, node("a", 3.3), node("b", 3.5), node("c"))
	s.want("it is there", 3, 0)

	for name, test := range map[string]struct {
		nodes    []Node
		cpu, gpu int
	}{
		"77.5 and 100 %":          {[]Node{node("a", 3.1), node("b", 4)}, 2, 0},
		"just 80 %":               {[]Node{node("a", 3.2)}, 1, 0},
		"memory":                  {[]Node{{Name: "a", Total: cluster.Resources{CPU: 4000, Memory: 10}, Others: cluster.Resources{Memory: 9}}}, 2, 0},
		"GPUs":                    {[]Node{gpu("g", 90), node("a")}, 1, 2},
		"one of two GPUs":         {[]Node{gpu("g", 90), gpu("h", 10)}, 0, 2},
		"CPU of GPU nodes only":   {[]Node{func() Node { n := gpu("g"); n.Others.CPU = 3900; return n }()}, 0, 2},
		"a GPU node has CPU left": {[]Node{gpu("g"), node("a", 4)}, 1, 1},
		"nothing":                 {nil, 0, 0},
	} {
		s := newScript(t)
		s.look(time.Minute, test.nodes...)
		s.want(name, test.cpu, test.gpu)
	}
}

// §4.2.3, rule 2: variants on a hardware platform are Interfered across all workers.
func TestSection423Rule2Interfered(t *testing.T) {
	for name, test := range map[string]struct {
		nodes    []Node
		cpu, gpu int
	}{
		"one of two":             {[]Node{is("interfered", gpu("g", 10)), gpu("h", 10)}, 0, 2},
		"both":                   {[]Node{is("interfered", gpu("g", 10)), is("interfered", gpu("h", 10)), node("a")}, 1, 3},
		"an empty node has room": {[]Node{is("interfered", node("a", 1)), node("b")}, 2, 0},
	} {
		s := newScript(t)
		s.look(time.Minute, test.nodes...)
		s.want(name, test.cpu, test.gpu)
	}
}

// §4.2.3, rule 3: more than 80 % of the workers have Overloaded variants.
func TestSection423Rule3Overloaded(t *testing.T) {
	over := func(n Node) Node { return is("overloaded", n) }
	for name, test := range map[string]struct {
		nodes    []Node
		cpu, gpu int
	}{
		"4 of 5":                     {[]Node{over(node("a", 1)), over(node("b", 1)), over(node("c", 1)), over(node("d", 1)), node("e", 1)}, 5, 0},
		"5 of 5":                     {[]Node{over(node("a", 1)), over(node("b", 1)), over(node("c", 1)), over(node("d", 1)), over(node("e", 1))}, 6, 0},
		"the only one":               {[]Node{over(node("a", 1))}, 2, 0},
		"most of them have GPUs":     {[]Node{over(node("a", 1)), over(gpu("g", 1)), over(gpu("h", 1))}, 1, 3},
		"the same number: the cheap": {[]Node{over(gpu("g", 1)), over(node("a", 1))}, 2, 1},
	} {
		s := newScript(t)
		s.look(time.Minute, test.nodes...)
		s.want(name, test.cpu, test.gpu)
	}
}

// A node that has not come is no longer wanted two minutes after its rule held last.
func TestSection423NoLongerWanted(t *testing.T) {
	s := newScript(t)
	s.look(time.Minute, node("a", 3.9))
	s.want("full", 2, 0)
	s.look(time.Minute, node("a", 1))
	s.want("a minute later", 2, 0)
	s.look(10*time.Second, node("a", 3.9))
	s.look(time.Minute, node("a", 1))
	s.want("it was full again meanwhile", 2, 0)
	s.look(time.Minute, node("a", 1))
	s.want("two minutes later", 1, 0)
}

// Scale-in, which §4.2.3 lacks: a node whose instances fit elsewhere for 10 minutes is drained.
func TestScaleIn(t *testing.T) {
	fits := []Node{node("a", 1), node("b", 1), node("c", 3)}
	s := newScript(t)
	s.look(9*time.Minute, fits...)
	s.look(2*time.Second, node("a", 3), node("b", 3), node("c", 3))
	s.look(9*time.Minute, fits...)
	s.want("twice for 9 minutes", 3, 0)
	s.look(2*time.Minute, fits...)
	s.want("for 10 minutes", 2, 0)
	if s.cpu.Drain != "a" {
		t.Errorf("%s is drained", s.cpu.Drain)
	}
	s.look(time.Hour, node("a"), node("b", 1, 1), node("c", 3))
	s.want("one at a time", 2, 0)
	s.look(9*time.Minute, node("b", 1, 1), node("c", 3))
	s.want("it has gone", 2, 0)
	s.look(time.Hour, node("b", 1, 1), node("c", 3))
	s.want("5 of 4 cores do not fit", 2, 0)

	for name, nodes := range map[string][]Node{
		"75 % of the rest":             {node("a", 1), node("b", 2), node("c", 3)},
		"the only one":                 {node("a")},
		"it fits nowhere":              {node("a", 3), node("b", 2), node("c", 2), node("d", 2)},
		"others hold it":               {func() Node { n := node("a"); n.Others.CPU = 1; return n }(), node("b", 3)},
		"it is overloaded":             {is("overloaded", node("a", 1)), node("b", 1)},
		"something interferes":         {node("a", 1), is("interfered", node("b", 1))},
		"it may not run on the others": {func() Node { n := node("a", 1); n.Instances[0].Nodes = []string{"a"}; return n }(), func() Node { n := node("b", 3.9); return n }()},
		"only GPU nodes have GPUs":     {gpu("g", 1), node("b", 3.9)},
	} {
		s := newScript(t)
		s.look(time.Hour, nodes...)
		if s.cpu.Count < s.cpu.Present || s.gpu.Count < s.gpu.Present {
			t.Errorf("%s: %+v, %+v", name, s.cpu, s.gpu)
		}
	}
}

// A node that is being drained stays if it is needed again, and is not drained again at that load.
// At a lower load it is.
func TestScaleInIsUndone(t *testing.T) {
	s := newScript(t)
	s.look(11*time.Minute, node("a", 1), node("b", 1))
	s.want("drained", 1, 0)
	s.look(time.Minute, node("a"), is("interfered", node("b", 1, 1)))
	s.want("needed again", 2, 0)
	s.look(24*time.Hour, node("a", 1), node("b", 1))
	s.want("the same load a day later", 2, 0)
	s.look(11*time.Minute, node("a", 0.8), node("b", 0.9))
	s.want("85 % of that load", 1, 0)
}

// world is a cluster with a constant load.
type world struct {
	load []Instance
	// size is the size of each node, and large of that of every third.
	size, large cluster.Resources
	nodes       []string
	made        int
	// crowd is the number of instances above which something interferes with those of a node,
	// and few that of nodes below which they are overloaded.
	crowd, few int
}

// state places all instances on the nodes but the drained one: the largest first, on the first
// node that has room, or nowhere.
func (w *world) state(drained string) (all []Node) {
	for _, name := range w.nodes {
		total := w.size
		if name[len(name)-1]%3 == 0 {
			total = w.large
		}
		all = append(all, Node{Name: name, Total: total})
	}
	for _, in := range w.load {
		for i := range all {
			if all[i].Name != drained && in.Holds.Fits(all[i].Total.Sub(all[i].held())) {
				all[i].Instances = append(all[i].Instances, in)
				break
			}
		}
	}
	for i := range all {
		n := len(all[i].Instances)
		all[i].Interfered = n > w.crowd
		all[i].Overloaded = n > 0 && len(all) < w.few
	}
	return all
}

func (w *world) add() {
	w.made++
	w.nodes = append(w.nodes, fmt.Sprintf("n%d", w.made))
}

// On constant load, nodes are added or removed until there is an end. A removal is undone at most
// once, and an added node that was needed stays.
func FuzzConstantLoad(f *testing.F) {
	f.Add(uint64(1), uint8(12), uint8(6), uint8(3), uint8(0), false)
	f.Add(uint64(2), uint8(40), uint8(1), uint8(9), uint8(2), true)
	f.Add(uint64(3), uint8(7), uint8(9), uint8(1), uint8(4), false)
	f.Fuzz(func(t *testing.T, seed uint64, instances, start, crowd, few uint8, mixed bool) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := &world{size: cluster.Resources{CPU: 4000, Memory: 1 << 34}, crowd: 1 + int(crowd%16), few: int(few % 6)}
		if w.large = w.size; mixed {
			w.large = cluster.Resources{CPU: 16000, Memory: 1 << 36}
		}
		for range instances % 48 {
			w.load = append(w.load, Instance{Holds: cluster.Resources{CPU: 250 * (1 + r.IntN(12)), Memory: 1 << 20}})
		}
		slices.SortFunc(w.load, func(a, b Instance) int { return b.Holds.CPU - a.Holds.CPU })
		for range 1 + start%10 {
			w.add()
		}
		s, now := New(Default()), time.Unix(0, 0)
		var ready, gone time.Time
		drained, turns, last, quiet := "", 0, 0, now
		change := func(by int) {
			if last != 0 && by != last {
				turns++
			}
			last, quiet = by, now
		}
		for now.Sub(quiet) < 3*time.Hour {
			now = now.Add(10 * time.Second)
			want := s.Look(now, w.state(drained))[0]
			switch {
			case want.Count > want.Present && ready.IsZero():
				ready = now.Add(time.Minute)
			case want.Count > want.Present && !now.Before(ready):
				w.add()
				change(1)
				ready = time.Time{}
			case want.Drain != drained:
				if drained, gone = want.Drain, now.Add(time.Minute); drained == "" {
					change(1) // The drain was undone.
				} else {
					change(-1)
				}
			case drained != "" && !now.Before(gone):
				w.nodes = slices.DeleteFunc(w.nodes, func(n string) bool { return n == drained })
				drained = ""
			}
			if len(w.nodes) == 0 {
				t.Fatal("the last node was removed")
			}
			if len(w.nodes) > 200 {
				return // More nodes do not help against this interference.
			}
			if turns > 2 {
				t.Fatalf("%d changes of direction by %v with %d nodes", turns, now.Sub(time.Unix(0, 0)), len(w.nodes))
			}
		}
	})
}

// A look at four times as many nodes, all loaded alike, takes about four times as many steps.
func TestGrowth(t *testing.T) {
	steps := func(n int) int {
		all := make([]Node, n)
		for i := range all {
			all[i] = Node{Name: fmt.Sprintf("node-%04d", i), Total: cluster.Resources{CPU: 16000, Memory: 64 << 30}}
			for range 5 {
				all[i].Instances = append(all[i].Instances, Instance{Holds: cluster.Resources{CPU: 1000, Memory: 1 << 30}})
			}
			if i%2 == 0 { // The first nodes are full, so a look for room begins far from where it ends.
				all[i].Others = cluster.Resources{CPU: 11000}
			}
		}
		slices.SortStableFunc(all, func(a, b Node) int { return b.Others.CPU - a.Others.CPU })
		f, spare := newFleet(all), 0
		for i := range all {
			if f.spare(i, 0.7) {
				spare++
			}
		}
		if spare != n/2 {
			t.Fatalf("%d of %d nodes are spare, want %d", spare, n, n/2)
		}
		return f.asked
	}
	if few, many := steps(500), steps(2000); float64(many) > 4*1.5*float64(few) {
		t.Errorf("500 nodes take %d steps and 2,000 take %d", few, many)
	}
}
