package flow_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/faas-infer/faas-infer/model/savedmodel/flow"
	pb "github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
)

// layers calls one function twice, which calls another one; beside what is
// served are a loss and a node that is only waited for.
const layers = `
graph_def {
  node { name: "in" op: "Placeholder" }
  node { name: "one" op: "StatefulPartitionedCall" input: "in" attr { key: "f" value { func { name: "layer" } } } }
  node { name: "two" op: "layer" input: "one:1" }
  node { name: "out" op: "Identity" input: "two:1" input: "^waited" }
  node { name: "loss" op: "L2Loss" input: "two" }
  node { name: "waited" op: "NoOp" }
  node { name: "top" op: "TopKV2" input: "out" input: "two" }
  library {
    function {
      signature { name: "layer" input_arg { name: "x" } output_arg { name: "parts" } output_arg { name: "y" } }
      ret { key: "parts" value: "cut:output:1" } ret { key: "y" value: "inner:output:0" }
      node_def { name: "cut" op: "Split" input: "x" attr { key: "num_split" value { i: 2 } } attr { key: "T" value { type: DT_HALF } } }
      node_def { name: "inner" op: "PartitionedCall" input: "cut:output:1" attr { key: "f" value { func { name: "act" } } } }
    }
    function {
      signature { name: "act" input_arg { name: "x" } output_arg { name: "y" } } ret { key: "y" value: "relu:activations:0" }
      node_def { name: "relu" op: "Relu" input: "x" }
    }
  }
}
meta_info_def { stripped_op_list {
  op { name: "Split" output_arg { name: "output" type_attr: "T" number_attr: "num_split" } }
  op { name: "TopKV2" output_arg { name: "values" } output_arg { name: "indices" type: DT_INT32 } }
} }`

func library(t *testing.T, text string) (*flow.Library, *pb.GraphDef) {
	t.Helper()
	meta := new(pb.MetaGraphDef)
	if err := prototext.Unmarshal([]byte(text), meta); err != nil {
		t.Fatal(err)
	}
	return flow.NewLibrary(meta), meta.GetGraphDef()
}

func names(g *flow.Graph) []string {
	var all []string
	for _, n := range g.Nodes {
		all = append(all, n.Name)
	}
	return all
}

func TestCallsArePutInPlace(t *testing.T) {
	l, def := library(t, layers)
	g, err := l.Main(def, []string{"in:0"}, []string{"out:0"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"one/cut", "one/inner/relu", "two/cut", "two/inner/relu"}; !slices.Equal(names(g), want) {
		t.Errorf("nodes %v, want %v", names(g), want)
	}
	cut := g.Nodes[2]
	if cut.Inputs[0].Node != g.Nodes[1] || !slices.Equal(cut.Read, []bool{false, true}) || !slices.Equal(cut.Types, []pb.DataType{pb.DataType_DT_HALF, pb.DataType_DT_HALF}) {
		t.Errorf("node %+v", cut)
	}
	if g.Outputs[0].Node != g.Nodes[3] || g.Nodes[0].Inputs[0].Node != g.Args[0] {
		t.Errorf("outputs %v, args %v", g.Outputs, g.Args)
	}
	g, err = l.Main(def, []string{"in:0"}, []string{"top:1", "two:0"})
	if err != nil {
		t.Fatal(err)
	}
	if g.Outputs[0].Output != 1 || g.Outputs[1].Output != 1 || g.Outputs[1].Node.Name != "two/cut" {
		t.Errorf("outputs %+v", g.Outputs)
	}
}

// Any tensor can be fed; what is before it is then not computed.
func TestFedInTheMiddle(t *testing.T) {
	l, def := library(t, layers)
	g, err := l.Main(def, []string{"one:1"}, []string{"out:0"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"cut", "relu"}; !slices.Equal(names(g), want) || g.Nodes[0].Inputs[0].Node != g.Args[0] {
		t.Errorf("nodes %v, want %v", names(g), want)
	}
}

func TestFunction(t *testing.T) {
	l, _ := library(t, layers)
	g, err := l.Function("layer")
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Args) != 1 || len(g.Outputs) != 2 || len(g.Nodes) != 2 {
		t.Errorf("%+v", g)
	}
	if again, err := l.Function("layer"); again != g || err != nil {
		t.Errorf("another graph, %v", err)
	}
	if _, err := l.Function("gone"); err == nil || !strings.Contains(err.Error(), `"gone"`) {
		t.Errorf("error %v", err)
	}
}

// A loop of TensorFlow 1 goes back from NextIteration to Merge.
func TestOldLoop(t *testing.T) {
	l, def := library(t, `graph_def {
  node { name: "in" op: "Placeholder" }
  node { name: "enter" op: "Enter" input: "in" }
  node { name: "merge" op: "Merge" input: "enter" input: "next" }
  node { name: "cond" op: "LoopCond" input: "merge" }
  node { name: "switch" op: "Switch" input: "merge" input: "cond" }
  node { name: "body" op: "Relu" input: "switch:1" }
  node { name: "next" op: "NextIteration" input: "body" }
  node { name: "exit" op: "Exit" input: "switch" }
}`)
	g, err := l.Main(def, []string{"in:0"}, []string{"exit:0"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"enter", "merge", "cond", "switch", "exit", "body", "next"}; !slices.Equal(names(g), want) || !g.Nodes[1].Loops {
		t.Errorf("nodes %v, want %v", names(g), want)
	}
}

func TestDamaged(t *testing.T) {
	for _, c := range []struct{ old, new, words string }{
		{`value: "cut:output:1"`, `value: "cut:parts:1"`, `"cut:parts:1" in function "layer"`},
		{`value: "cut:output:1"`, `value: "gone:output:1"`, `no such node in function "layer"`},
		{`value: "relu:activations:0"`, `value: "relu:activations:x"`, `does not name an output`},
		{`value: "relu:activations:0"`, `value: "relu:activations:99999999"`, `does not name an output`},
		{`ret { key: "y" value: "inner:output:0" }`, ``, `does not return "y"`},
		{`input: "two:1"`, `input: "two:2"`, `no output 2`},
		{`func { name: "act" }`, `func { name: "gone" }`, `does not have`},
		{`op: "Relu" input: "x"`, `op: "Relu" input: "relu:activations:0"`, `computed from itself`},
		{`op: "Relu" input: "x"`, `op: "Identity" input: "relu:activations:0"`, `read from itself`},
		{`input: "in" attr`, `attr`, `lacks input 0`},
	} {
		text := strings.Replace(layers, c.old, c.new, 1)
		if text == layers {
			t.Fatalf("%s is not there", c.old)
		}
		l, def := library(t, text)
		if _, err := l.Main(def, []string{"in:0"}, []string{"out:0", "two:0"}); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: got %v, want %q", c.new, err, c.words)
		}
	}
}

func TestCallsOfItself(t *testing.T) {
	l, def := library(t, strings.NewReplacer("relu:activations:0", "relu:y:0", `op: "Relu"`, `op: "act"`).Replace(layers))
	if _, err := l.Main(def, []string{"in:0"}, []string{"out:0"}); err == nil || !strings.Contains(err.Error(), "more than 64 deep") {
		t.Errorf("error %v", err)
	}
}

// A small file whose functions call the next one twice each describes a graph
// of a billion nodes.
func TestEndlessCalls(t *testing.T) {
	var text strings.Builder
	text.WriteString(`graph_def { node { name: "in" op: "Placeholder" } node { name: "out" op: "f0" input: "in" } library {`)
	for i := range 30 {
		fmt.Fprintf(&text, `function { signature { name: "f%d" input_arg { name: "x" } output_arg { name: "y" } } ret { key: "y" value: "sum" }
			node_def { name: "a" op: "f%d" input: "x" } node_def { name: "b" op: "f%d" input: "x" } node_def { name: "sum" op: "Add" input: "a" input: "b" } }`, i, i+1, i+1)
	}
	text.WriteString(`} }`)
	l, def := library(t, text.String())
	if _, err := l.Main(def, []string{"in:0"}, []string{"out:0"}); err == nil || !strings.Contains(err.Error(), "times") {
		t.Errorf("error %v", err)
	}
}

// A long chain needs no deep stack.
func TestLongChain(t *testing.T) {
	def := &pb.GraphDef{Node: []*pb.NodeDef{{Name: "0", Op: "Placeholder"}}}
	const length = 50000
	for i := 1; i <= length; i++ {
		op := "Relu"
		if i%2 == 0 {
			op = "Identity"
		}
		def.Node = append(def.Node, &pb.NodeDef{Name: fmt.Sprint(i), Op: op, Input: []string{fmt.Sprint(i - 1)}})
	}
	g, err := flow.NewLibrary(&pb.MetaGraphDef{}).Main(def, []string{"0:0"}, []string{fmt.Sprint(length)})
	if err != nil || len(g.Nodes) != length/2 {
		t.Errorf("%d nodes, %v", len(g.Nodes), err)
	}
}
