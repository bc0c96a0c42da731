package adapt

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// read makes a model of a graph in protobuf's text form.
func read(t *testing.T, graph string) (*Natural, error) {
	t.Helper()
	p := new(onnxpb.ModelProto)
	text := `ir_version: 8 opset_import { version: 17 } opset_import { domain: "ai.onnx.ml" version: 3 } graph { name: "g" ` + graph + ` }`
	if err := prototext.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	m, err := model.FromProto(p)
	if err != nil {
		t.Fatal(err)
	}
	return Read(m)
}

// value declares an input or output; sizes that are no numbers are names, and ? has none.
func value(kind, name string, dims ...string) string {
	s := kind + ` { name: "` + name + `" type { tensor_type { elem_type: 1 shape {`
	for _, d := range dims {
		switch {
		case d == "?":
			s += ` dim { }`
		case d[0] >= '0' && d[0] <= '9':
			s += ` dim { dim_value: ` + d + ` }`
		default:
			s += ` dim { dim_param: "` + d + `" }`
		}
	}
	return s + ` } } } } `
}

// The batch is the first axis, or the one with its name; a name that all inputs have comes next.
func TestProposals(t *testing.T) {
	identity := `node { op_type: "Identity" input: "x" output: "y" } ` + value("output", "y", "n")
	for _, c := range []struct {
		inputs string
		want   [][]int
		why    string
	}{
		{value("input", "x", "n", "4"), [][]int{{0}}, ""},
		{value("input", "x", "n", "4") + value("input", "s", "2", "n", "8"), [][]int{{0, 1}}, ""},
		{value("input", "x", "time", "batch", "4") + value("input", "z", "batch", "4"), [][]int{{0, 0}, {1, 0}}, ""},
		{value("input", "x", "1", "4"), [][]int{{0}}, ""},
		{value("input", "x", "2", "4"), nil, `input "x" has the fixed shape [2 4]`},
		{value("input", "x", "n", "4") + value("input", "k"), nil, `input "k" has no dimensions`},
		{value("input", "x", "?", "4") + value("input", "z", "1", "4"), nil, "some inputs have a dynamic first axis"},
	} {
		n, err := read(t, identity+c.inputs)
		if err != nil {
			t.Fatal(err)
		}
		all, why := n.Proposals()
		var got [][]int
		for _, p := range all {
			got = append(got, p.Inputs)
		}
		if !slices.EqualFunc(got, c.want, slices.Equal) || !strings.Contains(why, c.why) || c.why == "" && why != "" {
			t.Errorf("%s: %v, %q", c.inputs, got, why)
		}
	}
}

// Dimensions of one name have one size, sums are added up, and weights imply sizes.
func TestShapes(t *testing.T) {
	n, err := read(t, `initializer { name: "w" data_type: 1 dims: 40 dims: 2 float_data: 0 } node { op_type: "MatMul" input: ["f", "w"] output: "y" } `+value("output", "y", "n", "2")+
		value("input", "ids", "n", "s")+value("input", "past", "n", "p")+value("input", "mask", "n", "p + s")+value("input", "f", "n", "?")+value("input", "image", "n", "?", "h", "w")+value("input", "state", "2", "?", "8"))
	if err != nil {
		t.Fatal(err)
	}
	first := func(given tensor.Shapes) string {
		for s := range n.Model.GuessShapes(given, []int{0, 0, 0, 0, 0, 1}) {
			return s.String()
		}
		return ""
	}
	if got, want := first(nil), "f:1x40,ids:1x128,image:1x3x224x224,mask:1x256,past:1x128,state:2x1x8"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := first(tensor.Shapes{"ids": {5, 7}, "image": {1, 1, 28, 30}}), "f:1x40,ids:1x7,image:1x1x28x30,mask:1x135,past:1x128,state:2x1x8"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	count := 0
	for range n.Model.GuessShapes(nil, nil) {
		count++
	}
	if count < 10 || count > 40 {
		t.Errorf("%d proposals", count)
	}
}

// A ZipMap's probabilities and a sequence's tensors become tensors; a map is refused.
func TestFlatten(t *testing.T) {
	mapType := `{ map_type { key_type: 7 value_type { tensor_type { elem_type: 1 } } } }`
	n, err := read(t, `node { op_type: "ZipMap" domain: "ai.onnx.ml" input: "x" output: "y" } `+value("input", "x", "n", "3")+`output { name: "y" type { sequence_type { elem_type `+mapType+` } } }`)
	if err != nil || !n.Changed || n.Outputs[0].Type != tensor.FP32 || n.Model.Proto().GetGraph().GetNode()[0].GetOpType() != "Identity" {
		t.Errorf("%+v, %v", n, err)
	}
	n, err = read(t, `node { op_type: "SequenceConstruct" input: ["x", "x"] output: "y" } `+value("input", "x", "n", "3")+`output { name: "y" type { sequence_type { elem_type { tensor_type { elem_type: 1 } } } } }`)
	if err != nil || n.Outputs[0].Name != "y" || n.Model.Proto().GetGraph().GetNode()[1].GetOutput()[0] != "y" {
		t.Errorf("%+v, %v", n, err)
	}
	if _, err = read(t, `node { op_type: "Other" domain: "x" input: "x" output: "y" } `+value("input", "x", "n", "3")+`output { name: "y" type `+mapType+` }`); err == nil || !strings.Contains(err.Error(), `output "y" is not a tensor`) {
		t.Errorf("%v", err)
	}
}

// A scalar's values are those that the graph compares it with.
func TestCompared(t *testing.T) {
	n, err := read(t, `initializer { name: "c" data_type: 7 int64_data: 16000 } node { op_type: "Equal" input: ["c", "rate"] output: "b" } node { op_type: "Cast" input: "b" output: "y" } `+
		`input { name: "rate" type { tensor_type { elem_type: 7 shape { } } } } `+value("output", "y"))
	if err != nil || !slices.Equal(n.Compared(), []int64{16000}) {
		t.Errorf("%v, %v", n.Compared(), err)
	}
}

// Operators show what random rows may hide.
func TestCrossing(t *testing.T) {
	for node, want := range map[string]string{
		`node { op_type: "DynamicQuantizeLinear" input: "x" output: ["y", "s", "z"] }`: "takes one scale from all rows",
		`node { op_type: "ReduceSum" input: "x" output: "s" attribute { name: "noop_with_empty_axes" type: INT i: 1 } } node { op_type: "Cast" input: "s" output: "b" } node { op_type: "If" input: "b" output: "y" }`:     "decides for all rows",
		`node { op_type: "Shape" input: "x" output: "s" } node { op_type: "Gather" input: ["s", "zero"] output: "b" } node { op_type: "If" input: "b" output: "y" }`:                                                       "decides for all rows",
		`initializer { name: "one" data_type: 7 int64_data: 1 } node { op_type: "Shape" input: "x" output: "s" } node { op_type: "Gather" input: ["s", "one"] output: "b" } node { op_type: "If" input: "b" output: "y" }`: "",
		`node { op_type: "ReduceMax" input: "x" output: "m" attribute { name: "axes" type: INTS ints: 1 } } node { op_type: "Range" input: ["zero", "m", "one"] output: "y" }`:                                             "makes one size for all rows",
		`node { op_type: "Shape" input: "x" output: "s" } node { op_type: "Expand" input: ["one", "s"] output: "y" }`:                                                                                                      "",
		`node { op_type: "StringSplit" input: "x" output: "y" }`:                                                                                 "makes one size for all rows",
		`node { op_type: "ReduceSum" input: "x" output: "y" }`:                                                                                   "along the batch axis",
		`node { op_type: "Relu" input: "x" output: "r" } node { op_type: "ArgMax" input: "r" output: "y" }`:                                      "along the batch axis",
		`node { op_type: "Softmax" input: "x" output: "y" attribute { name: "axis" type: INT i: -2 } }`:                                          "along the batch axis",
		`node { op_type: "Softmax" input: "x" output: "y" attribute { name: "axis" type: INT i: -1 } }`:                                          "",
		`node { op_type: "ReduceMean" input: "x" output: "y" attribute { name: "axes" type: INTS ints: 1 } }`:                                    "",
		`node { op_type: "BatchNormalization" input: ["x", "a", "b", "c", "d"] output: "y" attribute { name: "training_mode" type: INT i: 1 } }`: "training mode",
	} {
		n, err := read(t, node+value("input", "x", "n", "4")+value("output", "y", "n", "4"))
		if err != nil {
			t.Fatal(err)
		}
		if got := n.Crossing([]int{0}); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", node, got, want)
		}
	}
}

// Denormal numbers count where an operator jumps at zero, and only there.
func TestJumps(t *testing.T) {
	for node, want := range map[string]bool{
		`node { op_type: "Relu" input: "x" output: "y" }`:                                                                                                       false,
		`node { op_type: "Log" input: "x" output: "y" }`:                                                                                                        true,
		`initializer { name: "c" data_type: 1 float_data: 0 } node { op_type: "Less" input: ["x", "c"] output: "y" }`:                                           true,
		`initializer { name: "c" data_type: 1 float_data: 0.5 } node { op_type: "Less" input: ["x", "c"] output: "y" }`:                                         false,
		`initializer { name: "c" data_type: 7 int64_data: 0 } node { op_type: "Equal" input: ["x", "c"] output: "y" }`:                                          false,
		`node { op_type: "If" input: "x" output: "y" attribute { name: "then_branch" type: GRAPH g { node { op_type: "Sign" input: "x" output: "z" } } } }`:     true,
		`node { op_type: "Constant" output: "c" attribute { name: "value_float" type: FLOAT f: 0 } } node { op_type: "Greater" input: ["c", "x"] output: "y" }`: true,
	} {
		n, err := read(t, node+value("input", "x", "n", "4")+value("output", "y", "n", "4"))
		if err != nil {
			t.Fatal(err)
		}
		if got := n.Jumps(); got != want {
			t.Errorf("%s: %v", node, got)
		}
	}
}

// Only what is put beside another tensor may be empty.
func TestMayBeEmpty(t *testing.T) {
	n, err := read(t, `node { op_type: "Concat" input: ["past", "x"] output: "y" attribute { name: "axis" type: INT i: 1 } } node { op_type: "Shape" input: "past" output: "s" }`+
		`node { op_type: "Relu" input: "x" output: "z" }`+value("input", "past", "n", "p")+value("input", "x", "n", "t")+value("output", "y", "n", "a"))
	if err != nil || !n.Inputs[0].Empty || n.Inputs[1].Empty {
		t.Errorf("%+v, %v", n.Inputs, err)
	}
}
