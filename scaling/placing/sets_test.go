package placing

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// set is a config of n members.
func set(n, cpu int, memory int64) capacity.Candidate {
	c := config(1, cpu, 0, 10*ms)
	c.Config.Parts, c.Config.Memory = n, memory
	return c
}

// A set goes to one node if it can, otherwise to the fewest, and of these to those that it fills
// best. The first member, the master, is where most members are.
func TestSetsOnSeveralNodes(t *testing.T) {
	const gib = 1 << 30
	for _, x := range []struct {
		nodes, want string
		n, cpu      int
	}{
		{"1000 2000 4000", "c", 2, 4000},
		{"2000 2000 1000 3000", "d d d c", 4, 4000},
		{"3000 2000 1000 4000", "a a a c", 4, 4000}, // d is one node, and out of reach here.
		{"1000 1000 1000 1000", "a b c d", 4, 4000},
		{"3000 2000 2000 1000", "a a a d", 4, 4000},
		{"1000 1000 1000 900", "", 4, 4000},
		{"2900 2900", "a a b b", 4, 4000},
	} {
		var nodes []cluster.Node
		for i, cpu := range strings.Fields(x.nodes) {
			n := node(string(rune('a'+i)), 0, 0, 16*gib)
			for _, digit := range cpu {
				n.Free.CPU = 10*n.Free.CPU + int(digit-'0')
			}
			n.Total = n.Free
			nodes = append(nodes, n)
		}
		allowed := []string(nil)
		if x.want == "a a a c" {
			allowed = []string{"a", "b", "c"}
		}
		d := capacity.Demand{RPS: 1, SLO: 100 * ms, Queue: capacity.LateBound, Configs: []capacity.Candidate{set(x.n, x.cpu, gib)}, Nodes: allowed}
		p := Schedule(d, nodes, capacity.Greedy())
		got := ""
		for _, y := range p.Placed {
			if got = strings.Join(y.Nodes, " "); y.Nodes == nil {
				got = y.Node
			} else if y.Node != y.Nodes[0] {
				t.Errorf("%s: on %q, and its master on %s", x.nodes, got, y.Node)
			}
		}
		if got != x.want {
			t.Errorf("%s: on %q, want %q", x.nodes, got, x.want)
		}
		if x.want == "" && (p.Reason != NoRoom || p.Lack.Members != 1 || p.Lack.Of != 4 ||
			!strings.Contains(p.Explain(d.SLO), "no room for 1 of a set's 4 members, which take 1000m CPU and 256 MiB each")) {
			t.Errorf("%s: %s", x.nodes, p.Explain(d.SLO))
		}
	}
}

// Members that share their CPU go to one node or nowhere.
func TestMembersThatShareStayTogether(t *testing.T) {
	const gib = 1 << 30
	share, apart := set(3, 1000, 3*gib), set(3, 3000, 3*gib)
	share.Config.Active, apart.Config.Active, apart.Config.Apart = 1, 1, true
	for _, x := range []struct {
		memory int64 // of each of two nodes with 4000m
		want   string
		cpu    int
	}{
		{4 * gib, "a", 1000},
		{2 * gib, "a a b", 3000}, // No node has the memory of all three.
	} {
		nodes := []cluster.Node{node("a", 4000, 0, x.memory), node("b", 4000, 0, x.memory)}
		d := capacity.Demand{RPS: 1, SLO: 100 * ms, Queue: capacity.LateBound, Configs: []capacity.Candidate{apart, share}}
		p := Schedule(d, nodes, capacity.Greedy())
		if len(p.Placed) != 1 {
			t.Fatalf("%d MiB: %+v", x.memory>>20, p)
		}
		got := p.Placed[0].Node
		if p.Placed[0].Nodes != nil {
			got = strings.Join(p.Placed[0].Nodes, " ")
		}
		if got != x.want || p.Placed[0].Config.CPU != x.cpu {
			t.Errorf("%d MiB: %v on %s", x.memory>>20, p.Placed[0].Config, got)
		}
	}
}

// FuzzSets places sets and other instances: nothing exceeds what a node has free, a set is whole
// or absent, on allowed nodes only, and on several only if it fits none and on no fewer.
func FuzzSets(f *testing.F) {
	for seed := range uint64(32) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 2))
		d, nodes, o := scenario(r)
		d.RPS = r.Float64() * 200
		for i := range d.Configs {
			if r.IntN(2) == 0 {
				c := &d.Configs[i].Config
				c.Parts, c.Concurrency, c.Active, c.Apart = 1+r.IntN(6), r.IntN(3), r.IntN(4), r.IntN(2) == 0
			}
		}
		if r.IntN(3) == 0 {
			d.Nodes = []string{"n0", "n2", "n3"}
		}
		p := Schedule(d, nodes, o)
		room := New(nodes, o)
		for _, x := range p.Placed {
			if n := x.Config.Members(); x.Nodes != nil && (len(x.Nodes) != n || n < 2 || x.Node != x.Nodes[0]) {
				t.Fatalf("%d members on %q, the master on %s", n, x.Nodes, x.Node)
			}
			if x.Nodes != nil {
				checkSpread(t, room, d.Nodes, &x)
			}
			for name, part := range cluster.Over(x.Node, x.Nodes, x.Config.Resources) {
				i, _ := room.Find(name)
				if d.Nodes != nil && !slices.Contains(d.Nodes, name) {
					t.Fatalf("on %s, allowed are %q", name, d.Nodes)
				}
				if !part.Fits(room.Places[i].Free) {
					t.Fatalf("%v of %v on %s, which has %v", part, x.Config, name, room.Places[i].Free)
				}
				room.Take(i, part, cluster.Tenant{})
			}
		}
		if p.Lack.Of > 0 && (p.Reason != NoRoom || p.Lack.Members < 1 || p.Lack.Members > p.Lack.Of) {
			t.Fatalf("%+v: %+v", p.Reason, p.Lack)
		}
		r.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		if again := Schedule(d, nodes, o); !reflect.DeepEqual(p, again) {
			t.Fatalf("shuffled nodes:\n%v\n%v", show(p), show(again))
		}
	})
}

// checkSpread checks that no node has room for a set on several, and that fewer have none.
func checkSpread(t *testing.T, room *Room, allowed []string, x *Placed) {
	var counts []int
	for _, at := range room.Places {
		if allowed != nil && !slices.Contains(allowed, at.Name) {
			continue
		}
		if x.Config.Resources.Fits(at.Free) {
			t.Fatalf("%v is on %q, and %s has room", x.Config, x.Nodes, at.Name)
		}
		counts = append(counts, copies(x.Config.Each(), at.Free, x.Config.Members()))
	}
	slices.Sort(counts)
	slices.Reverse(counts)
	least := 0
	for left := x.Config.Members(); left > 0; least++ {
		left -= counts[least]
	}
	names := slices.Compact(slices.Sorted(slices.Values(x.Nodes)))
	if len(names) != least && !(least == 1 && len(names) == 1) {
		t.Fatalf("on %d nodes, %d are enough: %q", len(names), least, x.Nodes)
	}
}
