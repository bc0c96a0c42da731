package graphs

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// operators lists a graph's operators, with those of its branches and bodies.
func operators(g *onnxpb.GraphProto) []string {
	var all []string
	for _, n := range g.Node {
		all = append(all, n.GetOpType())
		for _, a := range n.Attribute {
			if a.G != nil {
				all = append(all, operators(a.G)...)
			}
		}
	}
	return all
}

// The same seed gives the same graphs, and another one others.
func TestSameSeedSameGraph(t *testing.T) {
	for i := range 2 * len(kinds) {
		a, b, other := Make(7, i), Make(7, i), Make(8, i)
		if !proto.Equal(a.Model, b.Model) {
			t.Errorf("%s differs from itself", a.Name)
		}
		if proto.Equal(a.Model, other.Model) && !strings.HasSuffix(a.Name, "unbatched") {
			t.Errorf("%s is the same with another seed", a.Name)
		}
	}
}

// 300 graphs have what models of strangers have.
func TestVariety(t *testing.T) {
	seen, widths := map[string]int{}, map[int64]bool{}
	for i := range 300 {
		g := Make(1, i)
		for _, o := range operators(g.Model.Graph) {
			seen[o]++
		}
		for _, in := range g.Inputs {
			seen[string(in.Type)]++
			switch {
			case len(in.Shape) == 0:
				seen["scalar"]++
			case in.Shape[0] == Rows:
				seen["batch first"]++
			case slices.Contains(in.Shape, Rows):
				seen["batch elsewhere"]++
			case in.Shape[0] == 1:
				seen["batch of 1"]++
			default:
				seen["fixed"]++
			}
			for _, size := range in.Shape {
				widths[size] = true
				if size < Rows {
					seen["free size"]++
				}
			}
		}
		if len(g.Inputs) > 1 {
			seen["several inputs"]++
		}
		if len(g.Model.Graph.Output) > 1 {
			seen["several outputs"]++
		}
	}
	for _, want := range []string{"If", "Loop", "NonZero", "NonMaxSuppression", "Unique", "DynamicQuantizeLinear", "QuantizeLinear", "LSTM", "GRU",
		"LabelEncoder", "ZipMap", "CumSum", "ReduceMean", "scalar", "batch first", "batch elsewhere", "batch of 1", "fixed",
		"free size", "several inputs", "several outputs", "BYTES", "FP16", "FP64", "BOOL", "UINT8", "INT8", "INT32", "INT64"} {
		if seen[want] == 0 {
			t.Errorf("300 graphs have no %s", want)
		}
	}
	if len(widths) < 100 {
		t.Errorf("only %d different sizes", len(widths))
	}
}

// A request has the shapes that the graph declares.
func TestRequestsFitTheirGraph(t *testing.T) {
	for i := range 150 {
		g := Make(3, i)
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		for at, x := range Request(g.Inputs, 3, g.Sizes[0], 1, rng) {
			declared := g.Model.Graph.Input[at]
			dims := declared.Type.GetTensorType().Shape.Dim
			if declared.GetName() != x.Name || len(dims) != len(x.Shape) {
				t.Fatalf("%s: %s with the shape %v is declared as %v", g.Name, x.Name, x.Shape, declared)
			}
			for d, dim := range dims {
				if _, fixed := dim.Value.(*onnxpb.TensorShapeProto_Dimension_DimValue); fixed && dim.GetDimValue() != x.Shape[d] {
					t.Errorf("%s: %s has the shape %v and not %v", g.Name, x.Name, x.Shape, dims)
				}
			}
			n, err := tensor.Elements(x.Shape)
			if err != nil || x.Type != tensor.Bytes && n*int64(x.Type.Size()) != int64(len(x.Data)) {
				t.Errorf("%s: %s has %d bytes for the shape %v", g.Name, x.Name, len(x.Data), x.Shape)
			}
		}
	}
}

// Whole numbers stay within their bounds, and strings keep their lengths.
func TestValues(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	in := Input{Name: "i", Type: tensor.Int64, Shape: []int64{Rows}, Low: 2, High: 4}
	found := map[float64]bool{}
	x := Request([]Input{in}, 100, nil, 1, rng)[0]
	for at := 0; at < len(x.Data); at += 8 {
		found[tensor.Int64.Number(x.Data[at:])] = true
	}
	if len(found) != 3 || !found[2] || !found[3] || !found[4] {
		t.Errorf("values from 2 to 4 are %v", found)
	}
	for want, in := range map[float64]Input{16000: {Low: 16000, High: 16000}, 1: {Low: 1, High: 1}} {
		in.Type = tensor.Int32
		for range 20 {
			if got := tensor.Int32.Number(Request([]Input{in}, 1, nil, 1, rng)[0].Data); got != want {
				t.Errorf("%g, want %g", got, want)
			}
		}
	}
	if got := AppendString(nil, "ab"); string(got) != "\x02\x00\x00\x00ab" {
		t.Errorf("%q", got)
	}
}
