package operator_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// around is a graph without its nodes.
const around = `
ir_version: 8
opset_import { version: OPSET } opset_import { domain: "com.microsoft" version: 1 } opset_import { domain: "com.example" version: 1 }
graph {
  name: "test"
  input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_param: "b" } dim { dim_value: 4 } dim { dim_value: 8 } } } } }
  input { name: "f" type { tensor_type { elem_type: 1 shape { dim { dim_param: "b" } dim { dim_value: 8 } } } } }
  input { name: "i" type { tensor_type { elem_type: 7 shape { dim { dim_param: "b" } dim { dim_value: 3 } } } } }
  output { name: "y" type { tensor_type { elem_type: 1 } } }
  initializer { name: "w" dims: 8 dims: 2 data_type: 1 }
  initializer { name: "n" dims: 8 data_type: 1 }
  initializer { name: "c" data_type: 1 float_data: 2 }
`

func parse(t testing.TB, nodes string, opset string) *model.Model {
	t.Helper()
	p := new(onnxpb.ModelProto)
	if err := prototext.Unmarshal([]byte(strings.Replace(around, "OPSET", opset, 1)+nodes+"}"), p); err != nil {
		t.Fatal(err)
	}
	m, err := model.FromProto(p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func read(t testing.TB, m *model.Model) *operator.Graph {
	t.Helper()
	g, err := operator.Read(m)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func ofZoo(t testing.TB, name string) *model.Model {
	t.Helper()
	m, err := zoo.Make(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// cases reads testdata/keys.txt: a name, nodes, and the expected result.
func cases(t *testing.T) (all [][3]string) {
	t.Helper()
	text, err := os.ReadFile("testdata/keys.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "\n= ")[1:] {
		name, rest, _ := strings.Cut(strings.TrimSpace(part), "\n")
		nodes, keys, _ := strings.Cut(rest, "\n-> ")
		all = append(all, [3]string{name, nodes, keys})
	}
	return all
}

func TestKeys(t *testing.T) {
	for _, c := range cases(t) {
		t.Run(c[0], func(t *testing.T) {
			var got []string
			for _, o := range read(t, parse(t, c[1], "17")).Operators {
				got = append(got, o.Family()+": "+o.Key())
			}
			if want := strings.Split(c[2], "\n-> "); !slices.Equal(got, want) {
				t.Errorf("got  %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
			}
		})
	}
}

// Before opset 13 a Softmax along axis 1 takes all following dimensions as one row.
func TestKeyOfOldSoftmax(t *testing.T) {
	const node = `node { op_type: "Softmax" input: "x" output: "y" }`
	if got := read(t, parse(t, node, "12")).Operators[0].Key(); got != "Softmax{axis=1 flat}(FP32[b,4,8])->(FP32[b,4,8])" {
		t.Error(got)
	}
}

// Two layers of the same sizes are one operator; names do not matter.
func TestReadFindsEqualOperators(t *testing.T) {
	g := read(t, parse(t, `
		node { op_type: "Tanh" name: "first" input: "x" output: "p" }
		node { op_type: "Tanh" name: "second" input: "x" output: "q" }
		node { op_type: "Add" name: "sum" input: "q" input: "p" output: "r" }
		node { op_type: "Add" name: "twice" input: "r" input: "r" output: "s" }
		node { op_type: "Tanh" name: "last" input: "s" output: "y" }`, "17"))
	if len(g.Operators) != 3 || len(g.Nodes) != 5 {
		t.Fatalf("%d operators, %d nodes", len(g.Operators), len(g.Nodes))
	}
	for i, want := range []operator.Node{
		{Name: "first", Operator: 0}, {Name: "second", Operator: 0}, {Name: "sum", Operator: 1, Inputs: []int{0, 1}},
		{Name: "twice", Operator: 2, Inputs: []int{2}}, {Name: "last", Operator: 0, Inputs: []int{3}},
	} {
		if got := g.Nodes[i]; got.Name != want.Name || got.Operator != want.Operator || !slices.Equal(got.Inputs, want.Inputs) {
			t.Errorf("node %d is %+v, want %+v", i, got, want)
		}
	}
	if len(g.Inputs) != 3 || len(g.Outputs) != 1 || g.Outputs[0].Shape[0].String() != "b" {
		t.Errorf("inputs %v, outputs %v", g.Inputs, g.Outputs)
	}
}

// INFless §3.3, Observation 6: models share a common set of operators.
func TestObservation6(t *testing.T) {
	calls, distinct, types := 0, map[string]bool{}, map[string]bool{}
	for _, name := range []string{"mnist", "textcnn", "dssm", "lstm", "mobilenet", "yamnet"} {
		g := read(t, ofZoo(t, name))
		if len(g.Unknown) > 0 {
			t.Errorf("%s: unknown %v", name, g.Unknown)
		}
		calls += len(g.Nodes)
		for _, o := range g.Operators {
			distinct[o.Key()], types[o.Type] = true, true
		}
	}
	if calls != 244 || len(distinct) != 141 || len(types) != 29 {
		t.Errorf("%d calls of %d operators of %d types", calls, len(distinct), len(types))
	}
}

func TestFeatures(t *testing.T) {
	mnist := read(t, ofZoo(t, "mnist"))
	conv := mnist.Operators[0]
	// 16 filters of 5×5 over 28×28 with a stride of 2.
	if got, want := conv.Features(4), (operator.Features{
		FLOPs: 4 * 14 * 14 * 16 * 25, InBytes: 4 * 4 * 28 * 28, OutBytes: 4 * 4 * 16 * 14 * 14, WeightBytes: 4 * (16*25 + 16),
	}); got != want {
		t.Errorf("%s: %+v, want %+v", conv.Key(), got, want)
	}
	rows := read(t, parse(t, `node { op_type: "Gather" input: "w" input: "i" output: "y" }`, "17")).Operators[0]
	if got := rows.Features(1); got.WeightBytes != 3*2*4 {
		t.Errorf("three rows of a table are %+v", got)
	}
	pairs := read(t, parse(t, `node { op_type: "Transpose" input: "f" output: "g" } node { op_type: "MatMul" input: "f" input: "g" output: "y" }`, "17")).Operators[1]
	for _, b := range []int{1, 3, 32} {
		if got := pairs.Features(b).FLOPs; got != int64(8*b*b) {
			t.Errorf("all pairs of %d rows: %d multiply-adds", b, got)
		}
	}
}

func TestUnpredictable(t *testing.T) {
	const relu = `node { op_type: "Relu" name: "after" input: "g" output: "y" }`
	for _, c := range []struct{ name, nodes, node, why string }{
		{"control flow", `node { op_type: "If" name: "choose" input: "c" output: "g" attribute { name: "then_branch" g { name: "t" output { name: "x" } } type: GRAPH } }` + relu, "choose", "control flow"},
		{"custom operator", `node { op_type: "Sorcery" domain: "com.example" name: "strange" input: "x" output: "g" }` + relu, "strange (com.example.Sorcery)", "are unknown"},
		{"shape from data", `node { op_type: "NonZero" name: "find" input: "x" output: "g" } node { op_type: "Cast" input: "g" output: "y" attribute { name: "to" i: 1 type: INT } }`, "find (NonZero)", "only known while the model runs"},
		{"contents from data", `node { op_type: "ReduceMin" input: "i" output: "k" attribute { name: "keepdims" i: 0 type: INT } } node { op_type: "CumSum" name: "sums" input: "x" input: "k" output: "g" }` + relu, "sums (CumSum)", "the values of its input 1 are"},
		{"not in a line", `node { op_type: "Transpose" input: "f" output: "g" } node { op_type: "MatMul" input: "f" input: "g" output: "h" } node { op_type: "Flatten" name: "flat" input: "h" output: "y" attribute { name: "axis" i: 2 type: INT } }`, "flat (Flatten)", "at batches of 1, 2 and 5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := operator.Read(parse(t, c.nodes, "17"))
			var u *operator.Unpredictable
			if !errors.As(err, &u) {
				t.Fatalf("got %v", err)
			}
			if !slices.Contains(u.Nodes, c.node) || !strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), "measure the model whole") {
				t.Errorf("%q of %q", err, u.Nodes)
			}
		})
	}
	if got := (&operator.Unpredictable{Nodes: strings.Split("a b c d e f g", " "), Why: "w"}).Error(); !strings.Contains(got, "d, e and 2 more: w") {
		t.Error(got)
	}
}

// The error for a model that cannot be batched is ErrNoBatch, not Unpredictable.
func TestReadRefusesFixedBatch(t *testing.T) {
	p := ofZoo(t, "mnist").Proto()
	p.GetGraph().GetInput()[0].GetType().GetTensorType().GetShape().GetDim()[0].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: 1}
	m, err := model.FromProto(p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := operator.Read(m); !errors.Is(err, model.ErrNoBatch) {
		t.Errorf("got %v", err)
	}
}

// Dynamic dimensions other than the batch get the sizes of a sample.
func TestReadAssumesWhatSamplesHave(t *testing.T) {
	p := new(onnxpb.ModelProto)
	if err := prototext.Unmarshal([]byte(`ir_version: 8 opset_import { version: 17 } graph { name: "open"
		input { name: "picture" type { tensor_type { elem_type: 1 shape { dim { dim_param: "b" } dim { } dim { dim_param: "h" } dim { dim_param: "w" } } } } }
		input { name: "words" type { tensor_type { elem_type: 7 shape { dim { dim_param: "b" } dim { dim_param: "n" } } } } }
		output { name: "y" type { tensor_type { elem_type: 1 } } } output { name: "z" type { tensor_type { elem_type: 7 } } }
		node { op_type: "Relu" input: "picture" output: "y" } node { op_type: "Neg" input: "words" output: "z" } }`), p); err != nil {
		t.Fatal(err)
	}
	m, err := model.FromProto(p)
	if err != nil {
		t.Fatal(err)
	}
	g := read(t, m)
	samples, err := m.SampleInputs(7, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range samples {
		if got := g.Inputs[i].At(7); !slices.Equal(got, s.Shape) {
			t.Errorf("input %s is taken to be %v, its sample is %v", s.Name, got, s.Shape)
		}
	}
	if len(g.Assumed) != 4 || g.Assumed[3] != `dimension 1 of input "words" is dynamic and assumed to be 128` {
		t.Errorf("assumed %q", g.Assumed)
	}
}

func TestMemory(t *testing.T) {
	g := read(t, parse(t, `
		node { op_type: "Gemm" input: "f" input: "w" output: "p" }
		node { op_type: "Flatten" input: "p" output: "v" }
		node { op_type: "Gemm" input: "f" input: "w" output: "q" }
		node { op_type: "Add" input: "v" input: "q" output: "r" }
		node { op_type: "Relu" input: "r" output: "y" }`, "17"))
	if got := g.WeightBytes(); got != 4*8*2 {
		t.Errorf("weights of %d bytes", got)
	}
	// The inputs, x, f and i, and at the sum three tensors of [b, 2].
	if got := g.ActivationBytes(10); got != 10*(4*4*8+4*8+8*3+3*4*2) {
		t.Errorf("activations of %d bytes", got)
	}
}
