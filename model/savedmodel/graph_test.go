package savedmodel_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/savedmodel"
	"github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
)

// What Keras counts as a model's weights, to which come the single numbers that
// the graph holds as constants.
func TestGraphCountsWeights(t *testing.T) {
	for name, want := range map[string]int64{
		"dense": 6*8 + 8 + 8*3 + 3,
		"cnn": (3*3*3*4 + 4*4) + (3*3*4*4 + 4 + 4*4) + (3*3*4*2 + 8) + (3*3*8*6 + 6) + (3*3*6*5 + 5) + (2*3*5*4 + 4) +
			((5*11*4+4)*5 + 5),
		"textcnn": 50*8 + (2+3+4)*8*4 + 3*4 + 12 + 1,
		// Keras' GRU has two biases for each gate.
		"lstm":      4*(4+6+1)*6 + 2*3*(6+3+2)*3 + 6*2 + 2,
		"attention": 30*8 + 3*(8*8+8) + (8*8 + 8) + 2*8 + (8*16 + 16) + (16*8 + 8) + 2*8 + (8*2 + 2),
	} {
		g := graph(t, read(t, name, ""), 4)
		scalars := map[string]bool{}
		for _, op := range g.Operators {
			for _, in := range op.Inputs {
				if in.Constant != nil && len(in.Shape) == 0 && in.Contents == nil {
					scalars[in.Name] = true
				}
			}
		}
		if got := g.Parameters - int64(len(scalars)); got != want {
			t.Errorf("%s has %d parameters besides %d numbers, want %d", name, got, len(scalars), want)
		}
		if g.ParameterBytes != 4*g.Parameters {
			t.Errorf("%s: %d bytes of %d parameters", name, g.ParameterBytes, g.Parameters)
		}
	}
}

func TestGraphCountsWork(t *testing.T) {
	m := read(t, "dense", "")
	one, four := graph(t, m, 1), graph(t, m, 4)
	// Products, biases, Relu and Softmax.
	if want := int64(6*8 + 8 + 8 + 8*3 + 3 + 3); one.FLOPs != want || four.FLOPs != 4*want {
		t.Errorf("%d FLOPs at a batch of 1, %d at 4, want %d and %d", one.FLOPs, four.FLOPs, want, 4*want)
	}
	var types []string
	for _, op := range one.Operators {
		types = append(types, strings.TrimPrefix(op.Type, "tensorflow."))
	}
	if want := "MatMul BiasAdd Relu MatMul BiasAdd Softmax"; strings.Join(types, " ") != want {
		t.Errorf("operators %v, want %s", types, want)
	}
	for _, op := range graph(t, read(t, "cnn", ""), 2).Operators {
		if op.Type == "tensorflow.DepthwiseConv2dNative" && op.FLOPs != 2*5*6*8*3*3 {
			t.Errorf("%s takes %d", op.Name, op.FLOPs)
		}
		if op.Type == "tensorflow.Conv2DBackpropInput" && op.FLOPs != 2*10*12*6*3*3*5 {
			t.Errorf("%s takes %d", op.Name, op.FLOPs)
		}
	}
}

// Of a graph of TensorFlow 1 only what serves stays: no loss, no gradients, no
// optimiser, and of the condition the branch that is taken.
func TestTraining(t *testing.T) {
	g := graph(t, read(t, "tf1", ""), 3)
	var types []string
	for _, op := range g.Operators {
		types = append(types, strings.TrimPrefix(op.Type, "tensorflow."))
	}
	if want := "Conv2D Relu Reshape MatMul BiasAdd Softmax"; strings.Join(types, " ") != want {
		t.Errorf("operators %v, want %s", types, want)
	}
	if len(g.ControlFlow)+len(g.Unknown) > 0 {
		t.Errorf("control flow %v, unknown %v", g.ControlFlow, g.Unknown)
	}
}

// A recurrent layer's loop is named. Its steps do not depend on the data, so that
// its work is known, and grows with the batch.
func TestLoopIsNamed(t *testing.T) {
	m := read(t, "lstm", "")
	one, four := graph(t, m, 1), graph(t, m, 4)
	if len(four.ControlFlow) != 3 || len(four.Unknown) > 0 {
		t.Fatalf("control flow %v, unknown %v", four.ControlFlow, four.Unknown)
	}
	for i, op := range one.Operators {
		if op.Type != "tensorflow.While" || !strings.Contains(op.Name, "lstm") {
			continue
		}
		// Five steps of four gates, and what is done to their results.
		gates := int64(5 * 4 * 6 * (4 + 6))
		if op.FLOPs < gates || op.FLOPs > 2*gates || four.Operators[i].FLOPs < 3*op.FLOPs {
			t.Errorf("%s takes %d, and %d at a batch of 4; its gates alone take %d", op.Name, op.FLOPs, four.Operators[i].FLOPs, gates)
		}
	}
}

func TestUndecidedIsUnknown(t *testing.T) {
	g := graph(t, read(t, "branching", ""), 2)
	if want := []string{"cond", "while"}; !slices.Equal(g.ControlFlow, want) || !slices.Equal(g.Unknown, want) {
		t.Errorf("control flow %v, unknown %v", g.ControlFlow, g.Unknown)
	}
}

// Operators read only what is there before them, names are unique, and each
// node says the same as its operator.
func TestGraphIsExecutable(t *testing.T) {
	for _, c := range names {
		g := graph(t, read(t, c.name, c.signature), 4)
		executable(t, g)
		if g.Batch != 4 || g.Inputs[0].Shape[0] != 4 {
			t.Errorf("%s: batch %d, inputs %v", c.name, g.Batch, g.Inputs)
		}
	}
}

func executable(t *testing.T, g *model.Graph) {
	t.Helper()
	computed, operators := map[string]bool{}, map[string]bool{}
	for _, v := range g.Inputs {
		computed[v.Name] = true
	}
	for _, op := range g.Operators {
		if operators[op.Name] {
			t.Errorf("there are two operators %q", op.Name)
		}
		operators[op.Name] = true
		for i, v := range op.Inputs {
			if !computed[v.Name] && v.Constant == nil {
				t.Errorf("%s reads %q before it is computed", op.Name, v.Name)
			}
			if op.Node.GetInput()[i] != v.Name {
				t.Errorf("%s: input %d is %q and %q", op.Name, i, op.Node.GetInput()[i], v.Name)
			}
		}
		rest := slices.DeleteFunc(slices.Clone(op.Node.GetOutput()), func(name string) bool { return name == "" })
		for i, v := range op.Outputs {
			if computed[v.Name] || rest[i] != v.Name {
				t.Errorf("%s: output %q is computed twice, or not by the node: %q", op.Name, v.Name, rest)
			}
			computed[v.Name] = true
		}
	}
	for _, v := range g.Outputs {
		if !computed[v.Name] && v.Constant == nil {
			t.Errorf("nothing computes output %q", v.Name)
		}
	}
}

func TestAttributes(t *testing.T) {
	for _, op := range graph(t, read(t, "cnn", ""), 1).Operators {
		if op.Type != "tensorflow.DepthwiseConv2dNative" {
			continue
		}
		all := map[string]*onnxpb.AttributeProto{}
		for _, a := range op.Node.GetAttribute() {
			if strings.HasPrefix(a.GetName(), "_") || a.GetType() == onnxpb.AttributeProto_UNDEFINED {
				t.Errorf("attribute %v", a)
			}
			all[a.GetName()] = a
		}
		if !slices.Equal(all["strides"].GetInts(), []int64{1, 2, 2, 1}) || string(all["padding"].GetS()) != "SAME" ||
			all["T"].GetI() != int64(onnxpb.TensorProto_FLOAT) || op.Node.GetDomain() != savedmodel.Domain {
			t.Errorf("node %v", op.Node)
		}
		if w := op.Inputs[1]; w.Constant.GetDataLocation() != onnxpb.TensorProto_EXTERNAL || !slices.Equal(w.Shape, []int64{3, 3, 4, 2}) {
			t.Errorf("weight %+v", w)
		}
		return
	}
	t.Error("there is no such operator")
}

// A graph of TensorFlow 1 says of every attribute what it is, newer ones only of
// those that are not the default: the same operator has the same attributes.
func TestDefaultsAreLeftOut(t *testing.T) {
	var got []string
	for _, a := range graph(t, read(t, "tf1", ""), 1).Operators[0].Node.GetAttribute() {
		got = append(got, a.GetName())
	}
	if want := []string{"T", "padding", "strides"}; !slices.Equal(got, want) {
		t.Errorf("attributes %v, want %v", got, want)
	}
}

func TestSignatures(t *testing.T) {
	m := read(t, "signatures", "classify")
	if !slices.Equal(m.Signatures(), []string{"classify", "embed"}) || m.Signature() != "classify" || m.Name() != "signatures" {
		t.Errorf("signature %s of %v, name %s", m.Signature(), m.Signatures(), m.Name())
	}
	in, out := m.Inputs(), m.Outputs()
	if len(in) != 1 || in[0].Name != "x" || in[0].Type != "FP32" || !slices.Equal(in[0].Shape, []int64{-1, 6}) {
		t.Errorf("inputs %v", in)
	}
	if len(out) != 2 || out[0].Name != "classes" || out[0].Type != "INT32" || out[1].Name != "scores" {
		t.Errorf("outputs %v", out)
	}
	g := graph(t, m, 2)
	if g.Outputs[0].Name != "classes" || !slices.Equal(g.Outputs[0].Shape, []int64{2, 2}) {
		t.Errorf("outputs %v", g.Outputs)
	}
}

// rectify is a model of one operator; %s is the rest of its input's shape.
const rectify = `meta_graphs {
  meta_info_def { tags: "serve" }
  graph_def { node { name: "in" op: "Placeholder" } node { name: "out" op: "Relu" input: "in" } }
  signature_def { key: "serving_default" value {
    inputs { key: "x" value { name: "in:0" dtype: DT_FLOAT tensor_shape { dim { size: -1 } dim { size: 3 } } } }
    outputs { key: "y" value { name: "out:0" dtype: DT_FLOAT } }
  } }
}`

func fromText(t testing.TB, text string) (*savedmodel.Model, error) {
	t.Helper()
	saved := new(tensorflowpb.SavedModel)
	if err := prototext.Unmarshal([]byte(text), saved); err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(saved)
	if err != nil {
		t.Fatal(err)
	}
	return savedmodel.FromBytes(b, "")
}

func TestBatch(t *testing.T) {
	for _, c := range []struct{ old, new, words string }{
		{"dim { size: -1 } dim { size: 3 }", "dim { size: 1 } dim { size: 3 }", `input "x" has the fixed shape [1 3]`},
		{"dim { size: -1 } dim { size: 3 }", "", `input "x" has no dimensions`},
		{"tensor_shape { dim { size: -1 } dim { size: 3 } }", "", `input "x" has no dimensions`},
	} {
		m, err := fromText(t, strings.Replace(rectify, c.old, c.new, 1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Graph(1); !errors.Is(err, model.ErrNoBatch) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("got %v, want %q", err, c.words)
		}
	}
	m, err := fromText(t, rectify)
	if err != nil {
		t.Fatal(err)
	}
	for _, batch := range []int{-1, 0, model.MaxBatch + 1} {
		if _, err := m.Graph(batch); err == nil {
			t.Errorf("a batch of %d was taken", batch)
		}
	}
}

func TestAssume(t *testing.T) {
	for dims, want := range map[string][]int64{
		"dim { size: -1 } dim { size: -1 }":                                  {2, 128},
		"dim { size: -1 } dim { size: -1 } dim { size: 8 } dim { size: -1 }": {2, 224, 8, 3},
		"dim { size: -1 } dim { size: 3 }":                                   {2, 3},
	} {
		m, err := fromText(t, strings.Replace(rectify, "dim { size: -1 } dim { size: 3 }", dims, 1))
		if err != nil {
			t.Fatal(err)
		}
		settled, assumed := m.Assume()
		if g := graph(t, settled, 2); !slices.Equal(g.Outputs[0].Shape, want) || len(g.Unknown) > 0 {
			t.Errorf("%s: outputs %v", dims, g.Outputs)
		}
		open := 0
		for _, d := range m.Inputs()[0].Shape[1:] {
			if d < 0 {
				open++
			}
		}
		if len(assumed) != open {
			t.Errorf("%s: assumed %q", dims, assumed)
		}
	}
}
