package placing

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

const ms = time.Millisecond

func config(b, cpu, gpu int, exec time.Duration) capacity.Candidate {
	return capacity.Candidate{
		Config: cluster.Config{Batch: b, Resources: cluster.Resources{CPU: cpu, GPU: gpu, Memory: 100 << 20}},
		Exec:   exec,
	}
}

func node(name string, cpu, gpu int, memory int64) cluster.Node {
	r := cluster.Resources{CPU: cpu, GPU: gpu, Memory: memory}
	return cluster.Node{Name: name, Total: r, Free: r}
}

func show(p Placement) string {
	var b strings.Builder
	for _, x := range p.Placed {
		fmt.Fprintf(&b, "%v@%s ", x.Config, x.Node)
	}
	if p.Reason != None {
		fmt.Fprintf(&b, "residual %.4g", p.Residual)
	}
	return strings.TrimSpace(b.String())
}

// dssm has the project's measurements of DSSM on one thread, and on a quarter of one.
var dssm = []capacity.Candidate{
	config(1, 1000, 0, 820*time.Microsecond), config(8, 1000, 0, 1080*time.Microsecond), config(32, 1000, 0, 2320*time.Microsecond),
	config(1, 250, 0, 8500*time.Microsecond), config(8, 250, 0, 9*ms), config(32, 250, 0, 10*ms),
}

func TestSchedule(t *testing.T) {
	big := []cluster.Node{node("a", 4000, 0, 8<<30), node("b", 2000, 0, 8<<30)}
	for _, c := range []struct {
		name  string
		d     capacity.Demand
		nodes []cluster.Node
		o     capacity.Options
		want  string
	}{
		{
			"Algorithm 1, lines 3–15: the largest batch that the load fills; the rest falls to smaller ones",
			capacity.Demand{RPS: 90, SLO: 200 * ms, Configs: []capacity.Candidate{config(4, 1000, 0, 50*ms), config(1, 1000, 0, 20*ms)}},
			big, capacity.Faithful(), "⟨4,1000m,0%⟩@b ⟨1,1000m,0%⟩@b",
		},
		{
			"line 25: t_exec above half the SLO",
			capacity.Demand{RPS: 90, SLO: 99 * ms, Configs: []capacity.Candidate{config(4, 1000, 0, 50*ms), config(1, 1000, 0, 20*ms)}},
			big, capacity.Faithful(), "⟨1,1000m,0%⟩@b ⟨1,1000m,0%⟩@b",
		},
		{
			"line 20: one request need only be done within the SLO",
			capacity.Demand{RPS: 10, SLO: 50 * ms, Configs: []capacity.Candidate{config(1, 1000, 0, 50*ms)}},
			big, capacity.Greedy(), "⟨1,1000m,0%⟩@b",
		},
		{
			"without HalfSLO",
			capacity.Demand{RPS: 50, SLO: 99 * ms, Queue: capacity.LateBound, Configs: []capacity.Candidate{config(4, 1000, 0, 80*ms)}},
			big, capacity.Options{Beta: 1, DemandCapped: true, FragmentFloor: 0.5}, "⟨4,1000m,0%⟩@b",
		},
		{
			"one request per second takes the smallest share",
			capacity.Demand{RPS: 1, SLO: 50 * ms, Configs: dssm}, big, capacity.Greedy(), "⟨1,250m,0%⟩@b",
		},
		{
			"as printed, it takes the share that fills the server best",
			capacity.Demand{RPS: 1, SLO: 50 * ms, Configs: dssm}, []cluster.Node{node("a", 1000, 0, 8<<30)}, capacity.Faithful(), "⟨1,1000m,0%⟩@a",
		},
		{
			"late bound: of shares that cost the same, the one with the most room to grow",
			capacity.Demand{RPS: 1, SLO: 50 * ms, Configs: dssm, Queue: capacity.LateBound}, big, capacity.Greedy(), "⟨32,250m,0%⟩@b",
		},
		{
			"late bound: a big load takes what is most efficient",
			capacity.Demand{RPS: 10000, SLO: 50 * ms, Configs: dssm, Queue: capacity.LateBound}, big, capacity.Greedy(), "⟨32,1000m,0%⟩@b",
		},
		{
			"every dimension counts: memory",
			capacity.Demand{RPS: 100, SLO: 50 * ms, Configs: []capacity.Candidate{config(1, 100, 0, 20*ms)}},
			[]cluster.Node{node("a", 4000, 0, 150<<20), node("b", 4000, 0, 99<<20)}, capacity.Greedy(), "⟨1,100m,0%⟩@a residual 50",
		},
		{
			"every dimension counts: a node with GPUs and no cores",
			capacity.Demand{RPS: 100, SLO: 50 * ms, Configs: []capacity.Candidate{config(1, 100, 10, 10*ms)}},
			[]cluster.Node{node("a", 50, 400, 8<<30), node("b", 200, 100, 8<<30)}, capacity.Greedy(), "⟨1,100m,10%⟩@b",
		},
		{
			"an exact fit is the best packing",
			capacity.Demand{RPS: 20, SLO: 50 * ms, Configs: []capacity.Candidate{config(1, 1000, 0, 50*ms)}},
			[]cluster.Node{node("a", 1100, 0, 8<<30), node("b", 1000, 0, 8<<30), node("c", 4000, 0, 8<<30)}, capacity.Greedy(), "⟨1,1000m,0%⟩@b",
		},
		{
			"a limit: the instance must take its part",
			capacity.Demand{RPS: 5000, SLO: 50 * ms, Configs: dssm, Queue: capacity.LateBound, Limit: 1}, big, capacity.Greedy(), "⟨32,1000m,0%⟩@b",
		},
		{
			"a limit that is too small: the strongest",
			capacity.Demand{RPS: 50000, SLO: 50 * ms, Configs: dssm, Limit: 2}, big, capacity.Greedy(), "⟨32,1000m,0%⟩@b ⟨32,1000m,0%⟩@b residual 2.241e+04",
		},
		{
			"no batch is filled: it leaves when it times out",
			capacity.Demand{RPS: 1, SLO: 50 * ms, Configs: []capacity.Candidate{config(8, 1000, 0, 5*ms), config(4, 1000, 0, 4*ms)}}, big, capacity.Greedy(), "⟨4,1000m,0%⟩@b",
		},
		{"no load", capacity.Demand{SLO: 50 * ms, Configs: dssm}, big, capacity.Greedy(), ""},
		{"no node", capacity.Demand{RPS: 1, SLO: 50 * ms, Configs: dssm}, nil, capacity.Greedy(), "residual 1"},
		{
			"the paper's ⌊1/t⌋ is 0: Algorithm 1 as printed would not end",
			capacity.Demand{RPS: 1, SLO: 5 * time.Second, Configs: []capacity.Candidate{config(1, 1000, 0, 2*time.Second)}}, big, capacity.Faithful(), "residual 1",
		},
	} {
		if got := show(Schedule(c.d, c.nodes, c.o)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

// Eq. 10 with β = 1: a node has 4 cores, and the configs are ⟨b=4, c=1, g=0⟩ at 80
// requests/s and ⟨b=4, c=2⟩ at 120. Numerators are 80 and 60, normalised 1 and 0.75;
// fragments 3/4 and 1/2; e = 1.33 and 1.5.
func TestEquation10(t *testing.T) {
	d := capacity.Demand{RPS: 120, SLO: time.Second, Configs: []capacity.Candidate{config(4, 1000, 0, 50*ms), config(4, 2000, 0, 33333334)}}
	o := capacity.Faithful()
	o.Beta, o.Rounding = 1, capacity.Exact
	p := Schedule(d, []cluster.Node{node("a", 4000, 0, 8<<30)}, o)
	if len(p.Placed) == 0 || p.Placed[0].Config.CPU != 2000 || p.Placed[0].Efficiency < 1.499 || p.Placed[0].Efficiency > 1.501 {
		t.Errorf("got %+v, want the two-core config with e = 1.5", p)
	}
}

// Three instances of one core go on nodes of which one is partly used: to the
// tightest, or to the emptiest in turn.
func TestPlacing(t *testing.T) {
	nodes := []cluster.Node{node("a", 4000, 0, 8<<30), node("b", 4000, 0, 8<<30), node("c", 4000, 0, 8<<30)}
	nodes[1].Free.CPU = 1000
	d := capacity.Demand{RPS: 60, SLO: 50 * ms, Configs: []capacity.Candidate{config(1, 1000, 0, 50*ms)}}
	for placing, want := range map[capacity.Placing]string{capacity.BestFit: "b a a", capacity.Spread: "a c a"} {
		o := capacity.Greedy()
		o.Placement = placing
		var got []string
		for _, x := range Schedule(d, nodes, o).Placed {
			got = append(got, x.Node)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("placing %d: on %v, want %s", placing, got, want)
		}
	}
}

func TestExplain(t *testing.T) {
	d := capacity.Demand{RPS: 10, SLO: 5 * ms, Configs: []capacity.Candidate{config(1, 1000, 0, 45*ms), config(1, 2000, 0, 25*ms)}}
	nodes := []cluster.Node{node("a", 4000, 0, 8<<30)}
	got := Schedule(d, nodes, capacity.Greedy()).Explain(d.SLO)
	if want := "no config meets the SLO of 5ms: the fastest, ⟨1,2000m,0%⟩, takes 25ms"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	d.SLO, nodes[0].Free.CPU = time.Second, 100
	if got := Schedule(d, nodes, capacity.Greedy()).Explain(d.SLO); !strings.Contains(got, "no node has room for 10 requests/s more") {
		t.Errorf("got %q", got)
	}
	d.RPS = 1650.4
	if got := Schedule(d, nodes, capacity.Greedy()).Explain(d.SLO); !strings.Contains(got, "no node has room for 1650 requests/s more") {
		t.Errorf("got %q", got)
	}
	d.Configs = nil
	if got := Schedule(d, nodes, capacity.Greedy()).Explain(d.SLO); got != "there is no config to choose from" {
		t.Errorf("got %q", got)
	}
}

// scenario has a random demand and random nodes.
func scenario(r *rand.Rand) (capacity.Demand, []cluster.Node, capacity.Options) {
	o := capacity.Greedy()
	if r.IntN(2) == 0 {
		o = capacity.Faithful()
	}
	o.Placement = capacity.Placing(r.IntN(2))
	d := capacity.Demand{
		RPS: r.Float64() * 2000, SLO: time.Duration(r.IntN(300)) * ms,
		Queue: capacity.Queue(r.IntN(2)), Limit: max(0, r.IntN(12)-4),
	}
	for range r.IntN(20) {
		c := config(1<<r.IntN(6), r.IntN(3000), r.IntN(3)*r.IntN(50), time.Duration(r.IntN(200_000))*time.Microsecond)
		c.Config.Memory = r.Int64N(2 << 30)
		d.Configs = append(d.Configs, c)
	}
	var nodes []cluster.Node
	for i := range r.IntN(8) {
		nodes = append(nodes, node(fmt.Sprint("n", i), r.IntN(9000)-500, r.IntN(3)*100, r.Int64N(16<<30)))
	}
	return d, nodes, o
}

// A placement never exceeds a node's capacity in any dimension. It ends, keeps to its
// limit and to the SLO, and does not depend on the order of the arguments.
func FuzzSchedule(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		d, nodes, o := scenario(r)
		p := Schedule(d, nodes, o)
		if d.Limit > 0 && len(p.Placed) > d.Limit {
			t.Fatalf("%d instances placed, %d allowed", len(p.Placed), d.Limit)
		}
		used := map[string]cluster.Resources{}
		sum := 0.0
		for _, x := range p.Placed {
			used[x.Node] = used[x.Node].Add(x.Config.Resources)
			sum += x.Range.Up
			if d.SLO > 0 && x.Exec > d.SLO {
				t.Fatalf("%v takes %v of an SLO of %v", x.Config, x.Exec, d.SLO)
			}
		}
		for _, n := range nodes {
			if u, ok := used[n.Name]; ok && !u.Fits(n.Free) {
				t.Fatalf("%s has %v free, %v placed", n.Name, n.Free, u)
			}
		}
		if p.Reason == None && sum < d.RPS*(1-1e-6) {
			t.Fatalf("%v of %v requests/s placed, no reason given", sum, d.RPS)
		}
		r.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		r.Shuffle(len(d.Configs), func(i, j int) { d.Configs[i], d.Configs[j] = d.Configs[j], d.Configs[i] })
		if again := Schedule(d, nodes, o); !reflect.DeepEqual(p, again) {
			t.Fatalf("shuffled arguments:\n%v\n%v", show(p), show(again))
		}
	})
}

// fleet is the size for which the design is made: 10,000 instances on 2,000 servers.
func fleet() (capacity.Demand, []cluster.Node) {
	var nodes []cluster.Node
	for i := range 2000 {
		nodes = append(nodes, node(fmt.Sprintf("n%04d", i), 16000+i%7*500, 200, 128<<30))
	}
	d := capacity.Demand{SLO: 200 * ms}
	for b := 1; b <= 32; b *= 2 {
		for _, cpu := range []int{1000, 2000, 4000} {
			for _, gpu := range []int{0, 10, 20, 50} {
				exec := time.Duration(float64(5*ms) * (1 + float64(b)) / (float64(cpu)/1000 + float64(gpu)/5))
				d.Configs = append(d.Configs, config(b, cpu, gpu, exec))
			}
		}
	}
	return d, nodes
}

func BenchmarkSchedule10000On2000(b *testing.B) {
	d, nodes := fleet()
	d.RPS, d.Limit = 1e12, 10000
	placed := 0
	for b.Loop() {
		placed = len(Schedule(d, nodes, capacity.Greedy()).Placed)
	}
	b.ReportMetric(float64(placed), "instances")
}

func BenchmarkScheduleUntilFull(b *testing.B) {
	d, nodes := fleet()
	d.RPS = 1e12
	placed := 0
	for b.Loop() {
		placed = len(Schedule(d, nodes, capacity.Greedy()).Placed)
	}
	b.ReportMetric(float64(placed), "instances")
}
