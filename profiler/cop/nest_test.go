package cop

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/faas-infer/faas-infer/profiler/operator"
)

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

// On nested chains and branches, the paper's rule and the longest path through the graph are
// equal.
func FuzzNested(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		n := &nest{r: rand.New(rand.NewPCG(seed, 1)), g: &operator.Graph{}}
		_, want := n.grow(nil, 4)
		known := table{}
		for i, us := range n.times {
			known[fmt.Sprint(i)] = us
		}
		o := one
		o.Rule = Longest
		if got := predict(t, n.g, known, o).Configs[0].Median; math.Abs(got-want) > 1e-9 {
			t.Fatalf("longest path %v, want %v", got, want)
		}
	})
}
