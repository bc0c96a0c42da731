package graph

import (
	"testing"

	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

func list(t *testing.T, name string, tensors int) *Graph {
	t.Helper()
	m, err := zoo.Make(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cut.New(m)
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(name, c, Options{
		Tensors: tensors, Rows: []int{1, 2}, Threads: []int{1},
		Time: func(operator string, rows, threads int) float64 { return float64(rows) },
		Load: func(weights int64, operators int) float64 { return float64(weights) / (1 << 20) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// The blocks together hold the model's weights and compute its multiply-adds, and what each
// run is sent and returns is what its part is. All of it holds for one tensor between blocks
// and for several.
func TestBlocks(t *testing.T) {
	for _, name := range []string{"vgg-16", "resnet-50", "ssd", "bert-small", "textcnn-69"} {
		for _, tensors := range []int{1, 3, 0} {
			g := list(t, name, tensors)
			m := g.Model
			n := len(m.Blocks)
			whole, err := g.Part(shadow.Run{First: 0, End: n})
			if err != nil {
				t.Fatal(err)
			}
			// What prepares a mask is computed by each block that reads it.
			if got, want := float64(m.MACs(m.All())), float64(whole.FLOPs(1)); got < want || got > want*1.00001 {
				t.Errorf("%s by %d: the blocks compute %g, the model %g", name, tensors, got, want)
			}
			if got := m.Weights(m.All()); got < whole.WeightBytes()*999/1000 || got > whole.WeightBytes()*1001/1000 {
				t.Errorf("%s by %d: the blocks hold %d bytes, the model %d", name, tensors, got, whole.WeightBytes())
			}
			for first := range n {
				for _, end := range []int{first + 1, first + 2, first + 5, n} {
					if end <= n && end-first < n {
						g.check(t, name, shadow.Run{First: first, End: end})
					}
				}
			}
			t.Logf("%s by %d tensors: %d blocks", name, tensors, n)
		}
	}
}

func (g *Graph) check(t *testing.T, name string, r shadow.Run) {
	t.Helper()
	p, err := g.Part(r)
	if err != nil {
		t.Fatal(err)
	}
	in, out := g.Model.Crossing(r)
	if in != p.InputBytes(1) || out != p.OutputBytes(1) {
		t.Errorf("%s %v is sent %d and returns %d, its part %d and %d", name, r, in, out, p.InputBytes(1), p.OutputBytes(1))
	}
	// A block of several operators frees a tensor that later blocks need, too, after its own
	// last reader; and a part of BERT holds its mask, which each part prepares again.
	if got, least := g.Model.Activations(shadow.Phi{r}), p.ActivationBytes(1); got < least*2/3 {
		t.Errorf("%s %v holds %d, its part %d", name, r, got, least)
	}
}

// Several tensors between blocks make finer blocks of residual networks and of detectors.
func TestFiner(t *testing.T) {
	for name, least := range map[string]int{"resnet-50": 40, "ssd": 30} {
		one, several := len(list(t, name, 1).Model.Blocks), len(list(t, name, 0).Model.Blocks)
		if several <= one || several < least {
			t.Errorf("%s: %d blocks, and %d with one tensor between them", name, several, one)
		}
	}
}
