package savedmodel_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/savedmodel"
	"github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
)

// looped has calls, a loop that adds until it has three, and a condition.
const looped = `meta_graphs {
  meta_info_def { tags: "serve" }
  graph_def {
    node { name: "in" op: "Placeholder" }
    node { name: "zero" op: "Const" attr { key: "value" value { tensor { dtype: DT_INT32 int_val: 0 tensor_shape { } } } } }
    node { name: "loop" op: "While" input: "zero" input: "in" attr { key: "cond" value { func { name: "c" } } } attr { key: "body" value { func { name: "b" } } } }
    node { name: "call" op: "PartitionedCall" input: "loop:1" attr { key: "f" value { func { name: "f" } } } }
    node { name: "which" op: "If" input: "loop" input: "call" attr { key: "then_branch" value { func { name: "f" } } } attr { key: "else_branch" value { func { name: "f" } } } }
    library {
      function {
        signature { name: "c" input_arg { name: "i" } input_arg { name: "x" } output_arg { name: "on" } } ret { key: "on" value: "less:z:0" }
        node_def { name: "three" op: "Const" attr { key: "value" value { tensor { dtype: DT_INT32 int_val: 3 tensor_shape { } } } } }
        node_def { name: "less" op: "Less" input: "i" input: "three:output:0" }
      }
      function {
        signature { name: "b" input_arg { name: "i" } input_arg { name: "x" } output_arg { name: "i" } output_arg { name: "x" } }
        ret { key: "i" value: "add:z:0" } ret { key: "x" value: "twice:output:0" }
        node_def { name: "one" op: "Const" attr { key: "value" value { tensor { dtype: DT_INT32 int_val: 1 tensor_shape { } } } } }
        node_def { name: "add" op: "AddV2" input: "i" input: "one:output:0" }
        node_def { name: "axis" op: "Const" attr { key: "value" value { tensor { dtype: DT_INT32 int_val: 1 tensor_shape { } } } } }
        node_def { name: "twice" op: "ConcatV2" input: "x" input: "x" input: "axis:output:0" }
      }
      function {
        signature { name: "f" input_arg { name: "x" } output_arg { name: "y" } } ret { key: "y" value: "same:output:0" }
        node_def { name: "act" op: "Tanh" input: "x" }
        node_def { name: "same" op: "Identity" input: "act:y:0" input: "^act" }
      }
    }
  }
  signature_def { key: "serving_default" value {
    inputs { key: "x" value { name: "in:0" dtype: DT_FLOAT tensor_shape { dim { size: -1 } dim { size: 3 } } } }
    outputs { key: "y" value { name: "which:0" dtype: DT_FLOAT } }
  } }
}`

func encoded(t testing.TB, text string) []byte {
	t.Helper()
	saved := new(tensorflowpb.SavedModel)
	if err := prototext.Unmarshal([]byte(text), saved); err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(saved)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func holdsTogether(t *testing.T, b []byte, signature string) {
	t.Helper()
	m, err := savedmodel.FromBytes(b, signature)
	if err != nil {
		return
	}
	m, _ = m.Assume()
	for _, batch := range []int{1, 3} {
		g, err := m.Graph(batch)
		if err != nil {
			continue
		}
		executable(t, g)
		for _, op := range g.Operators {
			if op.FLOPs < 0 || op.Parameters < 0 || op.ParameterBytes < 0 {
				t.Errorf("operator %+v", op)
			}
		}
	}
}

// No bytes bring the reader down, and what it makes of them holds together.
func FuzzRead(f *testing.F) {
	f.Add(encoded(f, rectify), "")
	f.Add(encoded(f, looped), "serving_default")
	f.Fuzz(holdsTogether)
}

// Nor does a model of TensorFlow's own in which some things were changed.
func FuzzGraph(f *testing.F) {
	var models [][]byte
	for i, c := range names {
		models = append(models, files(f, c.name)["saved_model.pb"])
		f.Add(uint8(i), uint64(1), uint8(3))
	}
	f.Fuzz(func(t *testing.T, which uint8, seed uint64, changes uint8) {
		i := int(which) % len(names)
		saved := new(tensorflowpb.SavedModel)
		if err := proto.Unmarshal(models[i], saved); err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		nodes := bodies(saved.GetMetaGraphs()[0].GetGraphDef())
		for range changes%16 + 1 {
			change(rng, nodes[rng.IntN(len(nodes))])
		}
		b, err := proto.Marshal(saved)
		if err != nil {
			t.Fatal(err)
		}
		holdsTogether(t, b, names[i].signature)
	})
}

// bodies are the graph's nodes and those of its functions but what saves and
// restores.
func bodies(g *tensorflowpb.GraphDef) [][]*tensorflowpb.NodeDef {
	all := [][]*tensorflowpb.NodeDef{g.GetNode()}
	for _, f := range g.GetLibrary().GetFunction() {
		if !strings.Contains(f.GetSignature().GetName(), "traced") {
			all = append(all, f.GetNodeDef())
		}
	}
	return all
}

// change makes one node read something else, do something else, or do it
// otherwise.
func change(rng *rand.Rand, nodes []*tensorflowpb.NodeDef) {
	if len(nodes) == 0 {
		return
	}
	n, other := nodes[rng.IntN(len(nodes))], nodes[rng.IntN(len(nodes))]
	extreme := []int64{0, 1, -1, 2, 3, 7, 64, math.MaxInt64, math.MinInt64, 1 << 40}
	switch rng.IntN(6) {
	case 0:
		n.Op = other.Op
	case 1:
		n.Attr = other.Attr
	case 2:
		if len(n.Input) > 0 && len(other.Input) > 0 {
			n.Input[rng.IntN(len(n.Input))] = other.Input[rng.IntN(len(other.Input))]
		}
	case 3:
		n.Input = other.Input
	case 4:
		if t := n.GetAttr()["value"].GetTensor(); t != nil {
			t.TensorContent, t.IntVal = nil, []int32{int32(extreme[rng.IntN(len(extreme))])}
		}
	default:
		for _, v := range n.GetAttr() {
			switch v := v.GetValue().(type) {
			case *tensorflowpb.AttrValue_I:
				v.I = extreme[rng.IntN(len(extreme))]
			case *tensorflowpb.AttrValue_B:
				v.B = !v.B
			case *tensorflowpb.AttrValue_List:
				if i := v.List.GetI(); len(i) > 0 {
					i[rng.IntN(len(i))] = extreme[rng.IntN(len(extreme))]
				}
			case *tensorflowpb.AttrValue_Shape:
				for _, d := range v.Shape.GetDim() {
					d.Size = extreme[rng.IntN(len(extreme))]
				}
			}
		}
	}
}

func TestCallsAndLoops(t *testing.T) {
	m, err := savedmodel.FromBytes(encoded(t, looped), "")
	if err != nil {
		t.Fatal(err)
	}
	g := graph(t, m, 2)
	if out := g.Outputs[0]; out.Name != "y" || len(out.Shape) != 2 || out.Shape[1] != 3*8 {
		t.Errorf("outputs %+v", g.Outputs)
	}
	if len(g.Operators) != 3 || g.Operators[1].Name != "act" || len(g.ControlFlow) != 2 {
		t.Errorf("operators %+v, control flow %v", g.Operators, g.ControlFlow)
	}
}
