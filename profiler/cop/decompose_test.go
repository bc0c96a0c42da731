package cop

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/profiler/operator"
)

// The graph is a residual block, then two branches, one of which has branches itself.
func TestDecompose(t *testing.T) {
	g := graph("in conv relu sum left right upper lower join out",
		"in-conv", "conv-relu", "relu-sum", "in-sum", "sum-left", "sum-right", "right-upper", "right-lower", "upper-join", "lower-join", "left-out", "join-out")
	tree := Decompose(g)
	var text strings.Builder
	if err := tree.Print(&text); err != nil {
		t.Fatal(err)
	}
	want := `chain of 6
  in in
  conv conv
  relu relu
  sum sum
  2 branches
    left left
    chain of 3
      right right
      2 branches
        upper upper
        lower lower
      join join
  out out
`
	if text.String() != want {
		t.Errorf("got\n%swant\n%s", text.String(), want)
	}
	if !tree.SeriesParallel() {
		t.Error("it is series-parallel")
	}
	if got := tree.Time(func(i int) float64 { return float64(1 + i) }); got != 1+2+3+4+(6+8+9)+10 {
		t.Errorf("time %v", got)
	}
}

func TestKnot(t *testing.T) {
	tree := Decompose(graph("a b c d", "a-c", "a-d", "b-d"))
	if tree.Structure != Knot || tree.SeriesParallel() {
		t.Errorf("%+v", tree)
	}
	// b and d against a and c.
	if got := tree.Time(func(i int) float64 { return []float64{1, 5, 2, 3}[i] }); got != 8 {
		t.Errorf("time %v, want 8", got)
	}
	if text := string(tree.appendText(nil, 0)); !strings.HasPrefix(text, "knot of 4\n  a a\n") {
		t.Error(text)
	}
	if Decompose(&operator.Graph{}) != nil {
		t.Error("no nodes, but a tree")
	}
}

// nest makes random chains and branches and returns their time by the paper's rule.
type nest struct {
	r     *rand.Rand
	g     *operator.Graph
	times []float64
}

// grow adds a part that waits for the nodes in. It returns the nodes that the next part
// must wait for, and the part's time.
func (n *nest) grow(in []int, depth int) (out []int, us float64) {
	kind := n.r.IntN(3)
	if depth == 0 || kind == 0 {
		i := len(n.g.Nodes)
		us = n.r.ExpFloat64()
		n.times = append(n.times, us)
		n.g.Operators = append(n.g.Operators, &operator.Operator{Type: fmt.Sprint(i)})
		n.g.Nodes = append(n.g.Nodes, operator.Node{Name: fmt.Sprint(i), Operator: i, Inputs: in})
		return []int{i}, us
	}
	if kind == 1 {
		for range 2 + n.r.IntN(2) {
			var part float64
			in, part = n.grow(in, depth-1)
			us += part
		}
		return in, us
	}
	for range 2 + n.r.IntN(2) {
		ends, part := n.grow(in, depth-1)
		out, us = append(out, ends...), max(us, part)
	}
	return out, us
}

// On nested chains and branches, the paper's rule, the tree's time and the longest path
// through the graph are equal.
func FuzzDecomposeNested(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		n := &nest{r: rand.New(rand.NewPCG(seed, 1)), g: &operator.Graph{}}
		_, want := n.grow(nil, 4)
		tree := Decompose(n.g)
		if !tree.SeriesParallel() {
			t.Fatal("a nesting of chains and branches has a knot")
		}
		agree(t, n.g, tree, n.times, want)
	})
}

// On any graph the tree has each node once, and its time is the longest path's.
func FuzzDecomposeAny(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 2))
		g, _ := random(r, 1+r.IntN(80))
		times := make([]float64, len(g.Nodes))
		for i := range times {
			times[i] = r.ExpFloat64()
		}
		tree := Decompose(g)
		leaves := make([]int, len(g.Nodes))
		count(tree, leaves)
		for i, n := range leaves {
			if n != 1 {
				t.Fatalf("node %d is there %d times", i, n)
			}
		}
		agree(t, g, tree, times, tree.Time(func(i int) float64 { return times[i] }))
	})
}

func count(tree *Tree, leaves []int) {
	if len(tree.Parts) == 0 {
		for _, i := range tree.Nodes {
			leaves[i]++
		}
	}
	for _, p := range tree.Parts {
		count(p, leaves)
	}
}

func agree(t *testing.T, g *operator.Graph, tree *Tree, times []float64, want float64) {
	t.Helper()
	known := table{}
	for i, us := range times {
		known[fmt.Sprint(i)] = us
	}
	o := one
	o.Rule = Longest
	path := predict(t, g, known, o).Configs[0].Median
	got := tree.Time(func(i int) float64 { return times[i] })
	if math.Abs(got-want) > 1e-9 || math.Abs(path-want) > 1e-9 {
		t.Fatalf("tree %v, longest path %v, want %v", got, path, want)
	}
}
