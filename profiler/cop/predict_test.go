package cop

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// table has times in µs by operator type at a batch of 1 on one thread. They grow with the
// batch and shrink with the threads. A cold time is 1.5 times the warm one.
type table map[string]float64

func (t table) Time(op *operator.Operator, batch, millicores int, cold bool) (Estimate, bool) {
	us, ok := t[op.Type]
	us *= float64(batch) / float64(millicores/1000)
	if cold {
		us *= 1.5
	}
	source := Measured
	if strings.HasPrefix(op.Type, "regressed") {
		source = Regressed
	}
	return Estimate{Median: us, P95: us * 1.1, CPU: us * float64(millicores/1000), Margin: 0.1 * float64(1+source), Source: source}, ok
}

// graph has one operator per node; edges are pairs "a-b", nodes named in order.
func graph(nodes string, edges ...string) *operator.Graph {
	g, index := &operator.Graph{}, map[string]int{}
	for i, name := range strings.Fields(nodes) {
		index[name] = i
		g.Operators = append(g.Operators, &operator.Operator{Type: name})
		g.Nodes = append(g.Nodes, operator.Node{Name: name, Operator: i})
	}
	for _, e := range edges {
		a, b, _ := strings.Cut(e, "-")
		g.Nodes[index[b]].Inputs = append(g.Nodes[index[b]].Inputs, index[a])
	}
	return g
}

var one = Options{Batches: []int{1}, Threads: []int{1}, Engine: ONNXRuntime}

func predict(t *testing.T, g *operator.Graph, times Times, o Options) *Prediction {
	t.Helper()
	p, err := Predict(g, times, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// INFless §3.3: the time of a sequence chain is the sum of its operators, that of parallel
// branches the longest branch. For an engine that runs one operator after another it is
// the sum of all.
func TestChainsAndBranches(t *testing.T) {
	g := graph("a b c d e", "a-b", "a-c", "c-d", "b-e", "d-e")
	times := table{"a": 10, "b": 50, "c": 20, "d": 25, "e": 5}
	for _, c := range []struct {
		rule     Rule
		parallel bool
		want     float64
	}{
		{ByEngine, false, 110}, {ByEngine, true, 65}, {Sum, true, 110}, {Longest, false, 65},
	} {
		o := one
		o.Rule, o.Engine.Parallel = c.rule, c.parallel
		if got := predict(t, g, times, o).Configs[0]; math.Abs(got.Median-c.want) > 1e-9 || math.Abs(got.CPU-110) > 1e-9 {
			t.Errorf("rule %d, parallel %v: %v µs of %v µs CPU, want %v of 110", c.rule, c.parallel, got.Median, got.CPU, c.want)
		}
	}
}

func TestConfigsAndShares(t *testing.T) {
	g := graph("a b", "a-b")
	g.Nodes = append(g.Nodes, operator.Node{Name: "again", Operator: 1, Inputs: []int{1}})
	g.Operators[1].Type = "regressed"
	p := predict(t, g, table{"a": 100, "regressed": 50, "run": 20}, Options{
		Batches: []int{1, 4}, Threads: []int{1, 2}, Run: &operator.Operator{Type: "run"},
	})
	c, ok := p.At(4, 2)
	if !ok || c.Median != 440 || c.CPU != 880 {
		t.Fatalf("%+v", c)
	}
	if math.Abs(c.Shares[Measured]-240.0/440) > 1e-9 || math.Abs(c.Shares[Regressed]-200.0/440) > 1e-9 {
		t.Errorf("shares %v", c.Shares)
	}
	if want := (0.1*240 + 0.4*200) / 440; math.Abs(c.Margin-want) > 1e-9 {
		t.Errorf("margin %v, want %v", c.Margin, want)
	}
	if want := 440 + math.Sqrt(20*20+2*10*10+4*4); math.Abs(c.P95-want) > 1e-9 {
		t.Errorf("P95 %v, want %v", c.P95, want)
	}
	if p.Node(c, 2).Median != 100 {
		t.Errorf("node: %+v", p.Node(c, 2))
	}
	if len(p.Lacking) != 1 || p.Lacking[0] != g.Operators[1] || len(p.Missing) != 0 {
		t.Errorf("lacking %v, missing %v", p.Lacking, p.Missing)
	}
}

// A P95 of many times the median comes from neighbours.
func TestNoise(t *testing.T) {
	got := predict(t, graph("a"), interrupted{}, one).Configs[0]
	if got.Median != 30 || got.P95 != 60 {
		t.Errorf("median %v, P95 %v; want 30 and 60", got.Median, got.P95)
	}
}

// interrupted has a time with rare but long disturbances.
type interrupted struct{}

func (interrupted) Time(*operator.Operator, int, int, bool) (Estimate, bool) {
	return Estimate{Median: 30, P95: 210, CPU: 30}, true
}

func TestColdShare(t *testing.T) {
	for share, want := range map[float64]float64{0: 100, 0.5: 125, 1: 150, 7: 150, -1: 100, math.NaN(): 100} {
		o := one
		o.ColdShare = func(*operator.Operator, int) float64 { return share }
		if got := predict(t, graph("a"), table{"a": 100}, o).Configs[0].Median; got != want {
			t.Errorf("share %v: %v, want %v", share, got, want)
		}
	}
}

func TestProfile(t *testing.T) {
	g := graph("a b c", "a-b")
	o := Options{Batches: []int{1, 2}, Threads: []int{1}, Run: &operator.Operator{Type: "regressed run"}}
	if p := predict(t, g, table{"a": 1, "b": 1, "c": 1}, o); len(p.Lacking) != 1 || p.Lacking[0] != o.Run || len(p.Missing) != 1 {
		t.Errorf("without Run: lacking %v, missing %v", p.Lacking, p.Missing)
	}
	if p := predict(t, g, table{"a": 1, "b": 1, "c": 1, "regressed run": 1}, o); len(p.Lacking) != 0 {
		t.Errorf("Run is lacking: %v", p.Lacking)
	}
	at := time.Unix(1e9, 0)
	p := predict(t, g, table{"a": 1}, Options{Batches: []int{1, 2}, Threads: []int{1}})
	if _, err := p.Profile("abc", "engine", "machine", 5, at); err == nil || !strings.Contains(err.Error(), "the time of b, c") {
		t.Errorf("missing operators: %v", err)
	}
	p = predict(t, g, table{"a": 1, "b": 2, "c": 3}, Options{Batches: []int{1, 2}, Threads: []int{1}})
	got, err := p.Profile("abc", "engine", "machine", 5, at)
	if err != nil {
		t.Fatal(err)
	}
	m := got.Measurements[1]
	if !m.Predicted || m.Runs != 0 || m.Median != 12 || math.Abs(m.Margin-profiler.Margin) > 1e-9 || !got.Usable("engine", "machine") {
		t.Errorf("%+v", got)
	}
}

func TestBadOptions(t *testing.T) {
	good := graph("a b", "a-b")
	backwards := graph("a b", "b-a")
	wrong := graph("a")
	wrong.Nodes[0].Operator = 3
	for want, c := range map[string]struct {
		g *operator.Graph
		o Options
	}{
		"nothing to predict":       {good, Options{Batches: []int{1}}},
		"batch is 0":               {good, Options{Batches: []int{0}, Threads: []int{1}}},
		"threads is 0":             {good, Options{Batches: []int{1}, Threads: []int{0}}},
		"does not run before it":   {backwards, one},
		`node "a" has operator 3 `: {wrong, one},
	} {
		if _, err := Predict(c.g, table{}, c.o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// random is a graph of n nodes, each of which reads earlier ones.
func random(r *rand.Rand, n int) (*operator.Graph, table) {
	g, times := &operator.Graph{}, table{}
	for i := range n {
		name := fmt.Sprint(i)
		times[name] = r.ExpFloat64() * 100
		g.Operators = append(g.Operators, &operator.Operator{Type: name})
		node := operator.Node{Name: name, Operator: i}
		for j := range i {
			if r.IntN(n) < 2 {
				node.Inputs = append(node.Inputs, j)
			}
		}
		g.Nodes = append(g.Nodes, node)
	}
	return g, times
}

// In every graph the longest path is at least the longest operator and at most the sum.
// Slower operators never make a faster model.
func FuzzPredict(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 4))
		g, times := random(r, 1+r.IntN(40))
		o := Options{Batches: []int{1, 3}, Threads: []int{1, 2}, Engine: Engine{Parallel: true}}
		longest := predict(t, g, times, o)
		o.Rule = Sum
		all := predict(t, g, times, o)
		for i, c := range longest.Configs {
			most := 0.0
			for _, e := range c.Times {
				most = max(most, e.Median)
			}
			if c.Median < most-1e-9 || c.Median > all.Configs[i].Median+1e-6 || c.P95 < c.Median {
				t.Fatalf("longest path %v, longest operator %v, sum %v", c.Median, most, all.Configs[i].Median)
			}
		}
		name := fmt.Sprint(r.IntN(len(g.Nodes)))
		times[name] *= 2
		o.Rule = Longest
		for i, c := range predict(t, g, times, o).Configs {
			if c.Median < longest.Configs[i].Median {
				t.Fatalf("a slower operator makes %v of %v", c.Median, longest.Configs[i].Median)
			}
		}
	})
}
