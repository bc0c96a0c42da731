package model_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// exported is a part of a transformer as exporters write it. Operators compute the shape
// of a Reshape from the shape of its input.
const exported = `
ir_version: 8
opset_import { version: 17 }
graph {
  name: "exported"
  input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_param: "batch" } dim { dim_value: 128 } dim { dim_value: 768 } } } } }
  output { name: "y" type { tensor_type { elem_type: 1 } } }
  initializer { name: "w" dims: 768 dims: 64 data_type: 1 }
  initializer { name: "first" dims: 1 data_type: 7 int64_data: 0 }
  node { op_type: "MatMul" name: "project" input: "x" input: "w" output: "p" }
  node { op_type: "Shape" input: "p" output: "s" }
  node { op_type: "Gather" input: "s" input: "first" output: "b" }
  node { op_type: "Constant" output: "rest" attribute { name: "value" t { dims: 3 data_type: 7 int64_data: [128, 4, 16] } } }
  node { op_type: "Concat" input: "b" input: "rest" output: "target" attribute { name: "axis" i: 0 } }
  node { op_type: "Reshape" name: "heads" input: "p" input: "target" output: "h" }
  node { op_type: "Sorcery" domain: "com.example" name: "strange" input: "h" output: "u" }
  node { op_type: "Relu" name: "after" input: "u" output: "y" }
}`

func parse(t testing.TB, text string) *model.Model {
	t.Helper()
	p := new(onnxpb.ModelProto)
	if err := prototext.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	m, err := model.FromProto(p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func small(t testing.TB) []byte {
	t.Helper()
	b, err := proto.Marshal(parse(t, exported).Proto())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGraphFollowsComputedShapes(t *testing.T) {
	g, err := parse(t, exported).Graph(8)
	if err != nil {
		t.Fatal(err)
	}
	heads := g.Operators[5]
	if heads.Name != "heads" || !slices.Equal(heads.Outputs[0].Shape, []int64{8, 128, 4, 16}) {
		t.Errorf("operator %+v", heads)
	}
	if project := g.Operators[0]; project.FLOPs != 8*128*768*64 || project.Parameters != 768*64 || project.ParameterBytes != 4*768*64 {
		t.Errorf("operator %+v", project)
	}
	if g.FLOPs != 8*128*768*64 || g.Parameters != 768*64 {
		t.Errorf("the graph has %d FLOPs and %d parameters", g.FLOPs, g.Parameters)
	}
	if g.Operators[1].Name != "Shape#1" {
		t.Errorf("an operator without a name is called %q", g.Operators[1].Name)
	}
}

// A profiler needs the contents and constants of operands.
func TestGraphContentsAndConstants(t *testing.T) {
	g, err := parse(t, exported).Graph(8)
	if err != nil {
		t.Fatal(err)
	}
	target := g.Operators[5].Inputs[1]
	if !slices.Equal(target.Contents, []int64{8, 128, 4, 16}) || target.Constant != nil {
		t.Errorf("a computed target is %+v", target)
	}
	weight := g.Operators[0].Inputs[1]
	if weight.Constant.GetName() != "w" || weight.Contents != nil {
		t.Errorf("a weight is %+v", weight)
	}
	if first := g.Operators[2].Inputs[1]; first.Constant == nil || !slices.Equal(first.Contents, []int64{0}) {
		t.Errorf("an index is %+v", first)
	}
	if x := g.Inputs[0]; x.Contents != nil || x.Constant != nil {
		t.Errorf("an input is %+v", x)
	}
}

func TestGraphGoesOnAfterUnknownOperator(t *testing.T) {
	g, err := parse(t, exported).Graph(1)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(g.Unknown, []string{"strange", "after"}) {
		t.Errorf("unknown are %q", g.Unknown)
	}
	strange := g.Operators[6]
	if strange.Type != "com.example.Sorcery" || strange.Outputs[0].Shape != nil || len(g.Outputs) != 1 {
		t.Errorf("operator %+v, outputs %+v", strange, g.Outputs)
	}
}

// The graph names control flow, whose cost is unknown.
func TestGraphNamesControlFlow(t *testing.T) {
	flow := strings.Replace(exported, `op_type: "Sorcery" domain: "com.example" name: "strange"`,
		`op_type: "Loop" name: "strange" attribute { name: "body" g { name: "inner" output { name: "o" } } }`, 1)
	g, err := parse(t, flow).Graph(1)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(g.ControlFlow, []string{"strange"}) || !slices.Equal(g.Unknown, []string{"strange", "after"}) {
		t.Errorf("control flow is %q, unknown are %q", g.ControlFlow, g.Unknown)
	}
	if g, err = parse(t, exported).Graph(1); err != nil || g.ControlFlow != nil {
		t.Errorf("control flow is %q, %v", g.ControlFlow, err)
	}
}

func TestGraphCountsSharedWeightsOnce(t *testing.T) {
	shared := strings.Replace(exported, `node { op_type: "Shape"`,
		`node { op_type: "MatMul" input: "x" input: "w" output: "q" } node { op_type: "Shape"`, 1)
	g, err := parse(t, shared).Graph(1)
	if err != nil {
		t.Fatal(err)
	}
	if g.Operators[1].Parameters != 768*64 || g.Parameters != 768*64 {
		t.Errorf("the operator has %d parameters, the graph %d", g.Operators[1].Parameters, g.Parameters)
	}
}

func TestGraphErrors(t *testing.T) {
	for _, test := range []struct {
		name, old, new, words string
		want                  error
	}{
		{"fixed batch", `dim_param: "batch"`, `dim_value: 1`, `input "x" has the fixed shape [1 128 768]`, model.ErrNoBatch},
		{"scalar input", `shape { dim { dim_param: "batch" } dim { dim_value: 128 } dim { dim_value: 768 } }`, `shape { }`, `input "x" has no dimensions`, model.ErrNoBatch},
		{"no shape", `shape { dim { dim_param: "batch" } dim { dim_value: 128 } dim { dim_value: 768 } }`, ``, `input "x" has no dimensions`, model.ErrNoBatch},
		{"batch in a Reshape", `input: "target" output: "h"`, `input: "rest" output: "h"`, `operator "heads" (Reshape) cannot run at a batch of 8`, nil},
		{"weights of another size", `dims: 768 dims: 64`, `dims: 767 dims: 64`, `operator "project" (MatMul)`, nil},
		{"dangling input", `input: "b" input: "rest"`, `input: "nowhere" input: "rest"`, `reads "nowhere"`, nil},
		{"dangling output", `output: "y" }`, `output: "z" }`, `nothing computes output "y"`, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := strings.Replace(exported, test.old, test.new, 1)
			if text == exported {
				t.Fatal("nothing was replaced")
			}
			_, err := parse(t, text).Graph(8)
			if err == nil || !strings.Contains(err.Error(), test.words) {
				t.Fatalf("got %v, want %q", err, test.words)
			}
			if test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%v does not wrap %v", err, test.want)
			}
		})
	}
}

func TestGraphRefusesBatch(t *testing.T) {
	m := parse(t, exported)
	for _, batch := range []int{-1, 0, model.MaxBatch + 1} {
		if _, err := m.Graph(batch); err == nil {
			t.Errorf("a batch of %d was taken", batch)
		}
		if _, err := m.SampleInputs(batch, 1); err == nil {
			t.Errorf("a sample with a batch of %d was made", batch)
		}
	}
}

// Before IR version 4 a model lists its weights among its inputs.
func TestInputsWithoutWeights(t *testing.T) {
	old := strings.Replace(exported, `output { name: "y"`,
		`input { name: "w" type { tensor_type { elem_type: 1 shape { dim { dim_value: 768 } dim { dim_value: 64 } } } } } output { name: "y"`, 1)
	in := parse(t, old).Inputs()
	if len(in) != 1 || in[0].Name != "x" || !slices.Equal(in[0].Shape, []int64{-1, 128, 768}) {
		t.Errorf("inputs %v", in)
	}
}
