package savedmodel_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model"
)

// around puts nodes and functions between the input "in" and the output "out".
func around(nodes string) string {
	return strings.Replace(rectify, `node { name: "out" op: "Relu" input: "in" }`, nodes, 1)
}

func graphOf(t *testing.T, text string, batch int) *model.Graph {
	t.Helper()
	m, err := fromText(t, text)
	if err != nil {
		t.Fatal(err)
	}
	g := graph(t, m, batch)
	executable(t, g)
	return g
}

func number(name, value string) string {
	return `node { name: "` + name + `" op: "Const" attr { key: "value" value { tensor { dtype: DT_INT32 int_val: ` + value + ` tensor_shape { } } } } }`
}

const choice = `node { name: "out" op: "Case" input: "which" input: "in"
    attr { key: "branches" value { list { func { name: "keep" } func { name: "double" } } } } }
  library {
    function { signature { name: "keep" input_arg { name: "x" } output_arg { name: "y" } } ret { key: "y" value: "x" } }
    function { signature { name: "double" input_arg { name: "x" } output_arg { name: "y" } } ret { key: "y" value: "two" }
      node_def { name: "axis" op: "Const" attr { key: "value" value { tensor { dtype: DT_INT32 int_val: 1 tensor_shape { } } } } }
      node_def { name: "two" op: "ConcatV2" input: "x" input: "x" input: "axis" } }
  }`

// Of a condition that is known one branch counts, and else what all agree in.
func TestCase(t *testing.T) {
	for which, want := range map[string][]int64{number("which", "0"): {4, 3}, number("which", "1"): {4, 6},
		`node { name: "which" op: "Size" input: "in" }`: {4, -1}} {
		g := graphOf(t, around(which+choice), 4)
		if out := g.Outputs[0]; !slices.Equal(out.Shape, want) || len(g.ControlFlow) != 1 || (len(g.Unknown) > 0) != (want[1] < 0) {
			t.Errorf("%s: outputs %v, control flow %v, unknown %v", which, out, g.ControlFlow, g.Unknown)
		}
	}
}

// What grows from pass to pass of a loop whose end depends on the data is not
// known, and what stays is.
func TestGrowingLoop(t *testing.T) {
	loop := `node { name: "out" op: "While" input: "in" attr { key: "cond" value { func { name: "on" } } } attr { key: "body" value { func { name: "double" } } } }
  library {
    function { signature { name: "on" input_arg { name: "x" } output_arg { name: "y" } } ret { key: "y" value: "any" }
      node_def { name: "any" op: "Sorcery" input: "x" } }`
	functions := choice[strings.Index(choice, "    function"):]
	g := graphOf(t, around(loop+functions), 4)
	if out := g.Outputs[0]; !slices.Equal(out.Shape, []int64{4, -1}) || !slices.Equal(g.Unknown, []string{"out"}) {
		t.Errorf("outputs %v, unknown %v", g.Outputs, g.Unknown)
	}
}

// A loop without an end, each pass of which is known, is not followed for ever.
func TestEndlessLoop(t *testing.T) {
	loop := number("yes", "1") + `node { name: "loop" op: "While" input: "yes" input: "in" attr { key: "cond" value { func { name: "on" } } } attr { key: "body" value { func { name: "same" } } } }
  node { name: "out" op: "Relu" input: "loop:1" }
  library {
    function { signature { name: "on" input_arg { name: "i" } input_arg { name: "x" } output_arg { name: "y" } } ret { key: "y" value: "i" } }
    function { signature { name: "same" input_arg { name: "i" } input_arg { name: "x" } output_arg { name: "i" } output_arg { name: "x" } }
      ret { key: "i" value: "i" } ret { key: "x" value: "tanh" } node_def { name: "tanh" op: "Tanh" input: "x" } }
  }`
	g := graphOf(t, around(loop), 4)
	if out := g.Outputs[0]; !slices.Equal(out.Shape, []int64{4, 3}) || !slices.Equal(g.Unknown, []string{"loop"}) {
		t.Errorf("outputs %v, unknown %v", g.Outputs, g.Unknown)
	}
}

// TensorFlow 1 has a node for each of a condition's and a loop's parts.
func TestOldControlFlow(t *testing.T) {
	cond := `node { name: "which" op: "Any" input: "in" input: "axes" }
  node { name: "switch" op: "Switch" input: "in" input: "which" }
  node { name: "yes" op: "Relu" input: "switch:1" } node { name: "no" op: "Tanh" input: "switch" }
  node { name: "out" op: "Merge" input: "yes" input: "no" }`
	g := graphOf(t, around(number("axes", "0")+cond), 4)
	if !slices.Equal(g.ControlFlow, []string{"switch", "out"}) || !slices.Equal(g.Outputs[0].Shape, []int64{4, 3}) || len(g.Operators) != 5 {
		t.Errorf("outputs %v, control flow %v", g.Outputs, g.ControlFlow)
	}
	known := strings.Replace(cond, `node { name: "which" op: "Any" input: "in" input: "axes" }`, number("which", "1"), 1)
	g = graphOf(t, around(known), 4)
	if len(g.Operators) != 1 || g.Operators[0].Type != "tensorflow.Relu" || len(g.ControlFlow) > 0 || g.Outputs[0].Name != "yes:0" {
		t.Errorf("operators %+v, control flow %v", g.Operators, g.ControlFlow)
	}
	loop := `node { name: "enter" op: "Enter" input: "in" }
  node { name: "merge" op: "Merge" input: "enter" input: "next" }
  node { name: "cond" op: "LoopCond" input: "merge" }
  node { name: "switch" op: "Switch" input: "merge" input: "cond" }
  node { name: "body" op: "Relu" input: "switch:1" }
  node { name: "next" op: "NextIteration" input: "body" }
  node { name: "out" op: "Exit" input: "switch" }`
	g = graphOf(t, around(loop), 4)
	if len(g.Operators) != 7 || len(g.ControlFlow) != 6 || !slices.Equal(g.Outputs[0].Shape, []int64{4, 3}) {
		t.Errorf("outputs %v, control flow %v", g.Outputs, g.ControlFlow)
	}
}

// BenchmarkGraph infers a small transformer's shapes.
func BenchmarkGraph(b *testing.B) {
	m := read(b, "attention", "")
	for b.Loop() {
		if _, err := m.Graph(4); err != nil {
			b.Fatal(err)
		}
	}
}
