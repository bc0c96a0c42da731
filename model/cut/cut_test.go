package cut

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/zoo"
)

func zooModel(t testing.TB, name string) *Model {
	t.Helper()
	m, err := zoo.Make(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(m)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func group(t testing.TB, m *Model, first, end int) *Group {
	t.Helper()
	g, err := m.Group(first, end)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestDivide(t *testing.T) {
	for _, c := range []struct {
		n     int64
		parts int
		unit  int64
		want  string
	}{
		{7, 2, 1, "[[0,4) [4,7)]"}, // The paper's release makes 4 and 4 of it.
		{224, 4, 1, "[[0,56) [56,112) [112,168) [168,224)]"},
		{12, 3, 2, "[[0,4) [4,8) [8,12)]"},
		{10, 2, 2, "[[0,6) [6,10)]"},
		{3, 4, 1, "[]"},
		{7, 2, 2, "[]"},
		{4, 0, 1, "[]"},
	} {
		if got := fmt.Sprint(Divide(c.n, c.parts, c.unit)); got != c.want {
			t.Errorf("%d in %d parts by %d: %s, want %s", c.n, c.parts, c.unit, got, c.want)
		}
	}
}

// Gillis Fig. 2a: a region of a convolution's output needs the input under its windows.
func TestFig2Windows(t *testing.T) {
	for _, c := range []struct {
		w             Slide
		out           Span
		size          int64
		in            Span
		before, after int64
	}{
		{Slide{3, 1, 1, 1, 1}, Span{0, 4}, 8, Span{0, 5}, 1, 0},
		{Slide{3, 1, 1, 1, 1}, Span{4, 8}, 8, Span{3, 8}, 0, 1},
		{Slide{3, 2, 1, 1, 1}, Span{2, 4}, 8, Span{3, 8}, 0, 0},
		{Slide{3, 1, 2, 2, 2}, Span{3, 5}, 8, Span{1, 7}, 0, 0},
		{Slide{7, 2, 1, 2, 3}, Span{0, 1}, 8, Span{0, 5}, 2, 0},
		{Slide{2, 2, 1, 0, 0}, Span{2, 4}, 7, Span{4, 7}, 0, 0}, // ceil_mode
	} {
		in := c.w.reach(c.out).within(c.size)
		before, after := c.w.pads(c.out, in)
		if in != c.in || before != c.before || after != c.after {
			t.Errorf("%+v, %v: %v with %d and %d of padding, want %v with %d and %d", c.w, c.out, in, before, after, c.in, c.before, c.after)
		}
	}
}

// Gillis §III-C, Fig. 5: a block with branches is one layer, and element-wise operators are
// of the layer before.
func TestFig5Layers(t *testing.T) {
	for _, c := range []struct {
		name, first string
		layers      int
	}{
		{"vggnet", "Conv", 21},    // 13 convolutions, 5 poolings, 2 dense layers, softmax
		{"resnet-50", "Conv", 21}, // conv, pool, 16 blocks, pool, dense, softmax
		{"bert-small", "Gather", 12},
		{"dssm-2365", "Gemm", 4}, // a tower, and all after it
		{"lstm-2365", "Gather", 4},
	} {
		m := zooModel(t, c.name)
		layers := m.Layers()
		if len(layers) != c.layers {
			t.Errorf("%s has %d layers, want %d", c.name, len(layers), c.layers)
		}
		for i, l := range layers {
			if len(l.Operators) == 0 || !slices.IsSorted(l.Operators) || (len(l.Out) == 0) != (i == len(layers)-1) {
				t.Errorf("%s: layer %d is %+v", c.name, i, l)
			}
		}
		if !strings.HasPrefix(layers[0].Name, c.first) {
			t.Errorf("%s begins with %s", c.name, layers[0].Name)
		}
	}
}

// What a grid computes twice is little in shallow groups and much in deep ones (§III-C).
func TestOverlaps(t *testing.T) {
	m := zooModel(t, "vggnet")
	extra := func(first, end, high int) float64 {
		g := group(t, m, first, end)
		c, err := g.Grid(high, 1)
		if err != nil {
			t.Fatal(err)
		}
		parts, err := g.Cut(c)
		if err != nil {
			t.Fatal(err)
		}
		all := int64(0)
		for _, p := range parts {
			all += p.FLOPs(1)
		}
		wholes, err := g.Cut(g.Whole())
		if err != nil {
			t.Fatal(err)
		}
		return 100 * (float64(all)/float64(wholes[0].FLOPs(1)) - 1)
	}
	for _, c := range []struct {
		end, high int
		low, most float64
	}{{1, 2, 0, 0.01}, {2, 2, 0, 3}, {6, 2, 1, 10}, {6, 4, 3, 30}} {
		if got := extra(0, c.end, c.high); got < c.low || got > c.most {
			t.Errorf("%d layers in %d: %.2f %% more, want %v to %v", c.end, c.high, got, c.low, c.most)
		}
	}
}

// Channels divide the weights, height and width do not (Fig. 2); regions divide what is sent.
func TestFig2Sizes(t *testing.T) {
	m := zooModel(t, "vggnet")
	g := group(t, m, 1, 2)
	wholes, err := g.Cut(g.Whole())
	if err != nil {
		t.Fatal(err)
	}
	w := wholes[0]
	for _, c := range []struct {
		find             func() (Cut, error)
		weights, in, out float64 // of the whole
	}{
		{func() (Cut, error) { return g.Channels(2) }, 0.5, 1, 0.5},
		{func() (Cut, error) { return g.Grid(2, 1) }, 1, 0.5, 0.5},
		{func() (Cut, error) { return g.Grid(2, 2) }, 1, 0.25, 0.25},
	} {
		k, err := c.find()
		if err != nil {
			t.Fatal(err)
		}
		parts, err := g.Cut(k)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			about := func(what string, got, whole int64, want float64) {
				if ratio := float64(got) / float64(whole); ratio < want || ratio > want*1.05 {
					t.Errorf("%s: %s is %.3f of the whole's, want %v", k.Name, what, ratio, want)
				}
			}
			about("weight", p.WeightBytes(), w.WeightBytes(), c.weights)
			about("input", p.InputBytes(1), w.InputBytes(1), c.in)
			about("output", p.OutputBytes(1), w.OutputBytes(1), c.out)
		}
	}
	if got, want := w.OutputBytes(3), 3*w.OutputBytes(1); got != want {
		t.Errorf("three rows are %d bytes, not %d", got, want)
	}
	if got, least := w.ActivationBytes(1), w.InputBytes(1)+w.OutputBytes(1); got < least || got > 3*least {
		t.Errorf("activations are %d bytes; input and output are %d", got, least)
	}
}

// A plan whose parts overlap or leave gaps is refused.
func TestBadCuts(t *testing.T) {
	m := zooModel(t, "vggnet")
	g := group(t, m, 0, 1)
	shape := g.Shape(reference)
	part := func(from, to int64) Region {
		r := whole(shape)
		r[2] = Span{from, to}
		return r
	}
	rows := whole(shape)
	rows[0] = Span{0, 1}
	for want, regions := range map[string][]Region{
		"overlap":                   {part(0, 100), part(99, shape[2])},
		"leave gaps":                {part(0, 100), part(101, shape[2])},
		"the tensor is":             {part(0, shape[2]+1)},
		"grows with the batch":      {rows},
		"part 0 of":                 {whole(shape[1:])},
		"part 1 of \"Relu_1\" is [": {part(0, shape[2]), part(5, 5)},
	} {
		if _, err := g.Cut(Cut{Regions: regions}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", regions, err, want)
		}
	}
	for _, bad := range [][2]int{{-1, 1}, {1, 1}, {0, 1000}} {
		if _, err := m.Group(bad[0], bad[1]); err == nil {
			t.Errorf("layers %v are no error", bad)
		}
	}
	if _, err := g.Along(0, 2, 1); err == nil || !strings.Contains(err.Error(), "grows with the batch") {
		t.Errorf("rows: %v", err)
	}
	if _, err := g.Grid(1000, 1); err == nil || !strings.Contains(err.Error(), "cannot be divided") {
		t.Errorf("more parts than positions: %v", err)
	}
	last := group(t, m, len(m.Layers())-1, len(m.Layers()))
	if _, err := last.Grid(2, 1); err == nil {
		t.Error("a dense layer has a height")
	}
}

// An operator without a rule needs everything, so nothing is cut through it.
func TestUnknownIsWhole(t *testing.T) {
	x := []int64{reference, 4, 8, 8}
	n := &node{proto: &onnxpb.NodeProto{OpType: proto.String("Relu"), Input: []string{"x"}}, in: [][]int64{x}, contents: [][]int64{nil}, out: x}
	if l := linksOf(n); !slices.Contains(l.cuttable(4), true) {
		t.Fatal("a Relu cannot be cut")
	}
	for what, change := range map[string]func(*node){
		"an unknown operator":   func(n *node) { n.proto.OpType = proto.String("Secret") },
		"another domain":        func(n *node) { n.proto.Domain = proto.String("example.com") },
		"an unknown size":       func(n *node) { n.in[0] = []int64{reference, 4, -1, 8} },
		"an unknown rank":       func(n *node) { n.in[0] = nil },
		"weights without types": func(n *node) { n.untyped = true },
	} {
		n := &node{proto: proto.CloneOf(n.proto), in: [][]int64{x}, contents: [][]int64{nil}, out: x}
		change(n)
		if l := linksOf(n); slices.Contains(l.cuttable(4), true) {
			t.Errorf("%s can be cut: %v", what, l)
		}
	}
}

// A model with control flow is one whole layer, and its part is the model itself: the graphs
// within its operators read tensors and weights that no node names.
func TestControlFlowIsWhole(t *testing.T) {
	m, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	p := proto.CloneOf(m.Proto())
	g := p.Graph
	last := g.Node[len(g.Node)-1]
	result := last.Output[0]
	last.Output[0] = "logits"
	branch := func(by string) *onnxpb.AttributeProto {
		return &onnxpb.AttributeProto{Name: proto.String(by), Type: onnxpb.AttributeProto_GRAPH.Enum(), G: &onnxpb.GraphProto{
			Name:   proto.String(by),
			Node:   []*onnxpb.NodeProto{{OpType: proto.String("Mul"), Input: []string{"logits", by + " scale"}, Output: []string{by}}},
			Output: []*onnxpb.ValueInfoProto{{Name: proto.String(by), Type: g.Output[0].Type}},
		}}
	}
	for _, by := range []string{"then_branch", "else_branch"} {
		g.Initializer = append(g.Initializer, &onnxpb.TensorProto{Name: proto.String(by + " scale"), DataType: proto.Int32(1), FloatData: []float32{2}})
	}
	g.Initializer = append(g.Initializer, &onnxpb.TensorProto{Name: proto.String("yes"), DataType: proto.Int32(9), Dims: []int64{}, Int32Data: []int32{1}})
	g.Node = append(g.Node, &onnxpb.NodeProto{
		Name: proto.String("choice"), OpType: proto.String("If"), Input: []string{"yes"}, Output: []string{result},
		Attribute: []*onnxpb.AttributeProto{branch("then_branch"), branch("else_branch")},
	})
	changed, err := model.FromProto(p)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(changed)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(c.Layers()); n != 1 {
		t.Fatalf("%d layers", n)
	}
	whole := group(t, c, 0, 1)
	if _, err := whole.Along(1, 2, 1); err == nil || !strings.Contains(err.Error(), "control flow (choice)") {
		t.Errorf("it can be cut: %v", err)
	}
	parts, err := whole.Cut(whole.Whole())
	if err != nil {
		t.Fatal(err)
	}
	part, _, err := parts[0].Model()
	if err != nil {
		t.Fatal(err)
	}
	q := part.Proto().Graph
	if len(q.Node) != len(g.Node) || len(q.Initializer) != len(g.Initializer) || !proto.Equal(q.Output[0], g.Output[0]) {
		t.Errorf("the part has %d operators and %d weights, the model %d and %d", len(q.Node), len(q.Initializer), len(g.Node), len(g.Initializer))
	}
	if got, want := parts[0].WeightBytes(), int64(0); got <= want {
		t.Errorf("its weights are %d bytes", got)
	}
}

// Runs of a region are what a row-by-row walk finds.
func FuzzRuns(f *testing.F) {
	f.Add([]byte{3, 4, 5, 0, 3, 1, 2, 2, 5})
	f.Add([]byte{2, 1, 1, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 9 {
			return
		}
		rank := 1 + int(b[8])%3
		shape, r := make([]int64, rank), make(Region, rank)
		n := int64(1)
		for d := range rank {
			shape[d] = 1 + int64(b[d])%6
			n *= shape[d]
			from := int64(b[3+d]) % shape[d]
			r[d] = Span{from, from + 1 + int64(b[(6+d)%9])%(shape[d]-from)}
		}
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(i)
		}
		got, err := Take(data, shape, r, 1)
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		for i := range n {
			inside, rest := true, i
			for d := rank - 1; d >= 0; d-- {
				at := rest % shape[d]
				rest /= shape[d]
				inside = inside && at >= r[d].From && at < r[d].To
			}
			if inside {
				want = append(want, byte(i))
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%v of %v: %v, want %v", r, shape, got, want)
		}
		back := make([]byte, n)
		if err := Put(back, shape, r, 1, got); err != nil {
			t.Fatal(err)
		}
		again, _ := Take(back, shape, r, 1)
		if !bytes.Equal(again, want) {
			t.Fatalf("put and taken: %v, want %v", again, want)
		}
	})
}

// A part's shares are the part: the same work and weights, and no more sent.
func TestSharesArePart(t *testing.T) {
	for _, name := range []string{"vggnet", "resnet-50", "bert-small"} {
		m := zooModel(t, name)
		for end := 3; end < len(m.Layers()); end += 4 {
			c := group(t, m, end-1, end).Whole()
			if grid, err := group(t, m, end-1, end).Grid(2, 1); err == nil {
				c = grid
			}
			var region Region
			if c.Regions != nil {
				region = c.Regions[0]
			}
			flops, weights, most := int64(0), int64(0), int64(0)
			err := m.Shares(end, region, 2, func(s Share) bool {
				for _, w := range s.Work {
					flops += w.FLOPs
				}
				weights += s.Weights
				g := group(t, m, s.Layer, end)
				parts, err := g.Cut(c)
				if err != nil {
					t.Fatal(err)
				}
				p := parts[0]
				if math.Abs(float64(p.FLOPs(2)-flops)) > 1e-3*float64(flops) || p.WeightBytes()-weights > 64<<10 || weights > p.WeightBytes() {
					t.Errorf("%s, layers %d to %d: shares of %d multiply-adds and %d bytes, the part %d and %d", name, s.Layer, end-1, flops, weights, p.FLOPs(2), p.WeightBytes())
				}
				if most = max(most, s.Activations); s.In > p.InputBytes(2) || s.In < p.InputBytes(2)/2 || float64(most) > 1.01*float64(p.ActivationBytes(2)) || most < p.ActivationBytes(2)*9/10 {
					t.Errorf("%s, layers %d to %d: sent %d, holds %d; the part %d and %d", name, s.Layer, end-1, s.In, most, p.InputBytes(2), p.ActivationBytes(2))
				}
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func BenchmarkShares(b *testing.B) {
	m := zooModel(b, "resnet-50")
	for b.Loop() {
		for end := 1; end < 19; end++ {
			g := group(b, m, end-1, end)
			c, err := g.Grid(2, 2)
			if err != nil {
				b.Fatal(err)
			}
			for _, r := range c.Regions {
				if err := m.Shares(end, r, 1, func(s Share) bool { return s.Local }); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
}
