package model

import (
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// Lookup is a table of which an operator takes rows by number, such as a model's embeddings of tokens.
type Lookup struct {
	// Weight is the table's name, Rows and Columns are its dimensions.
	Weight        string
	Rows, Columns int64
	// Input is the model's input with the numbers of the rows, "" if they are calculated.
	Input string
	// From is the input from whose values the numbers are calculated, "" if they follow from sizes alone.
	From string
}

// Lookups lists the tables with two dimensions that the operators of a model's main graph take rows of, in the
// order of the operators. It reads no weights. A table that another operator makes is left out.
func (m *Model) Lookups() (all []Lookup) {
	g := m.proto.GetGraph()
	w := lookupWalk{weights: map[string][]int64{}, made: map[string]*onnxpb.NodeProto{}, inputs: map[string]bool{}}
	for _, t := range g.GetInitializer() {
		w.weights[t.GetName()] = t.GetDims()
	}
	for _, in := range m.inputs() {
		w.inputs[in.GetName()] = true
	}
	for _, n := range g.GetNode() {
		for _, out := range n.GetOutput() {
			if out != "" { // An optional output that is left out.
				w.made[out] = n
			}
		}
	}
	for _, n := range g.GetNode() {
		in := n.GetInput()
		switch n.GetOpType() {
		case "Gather", "GatherBlockQuantized":
			if len(in) > 1 && gathersRows(n) {
				all = w.add(all, in[0], in[1])
			}
		case "EmbedLayerNormalization": // ONNX Runtime's, of ids, segments and three tables.
			for i, table := range in[min(2, len(in)):min(5, len(in))] {
				ids := [...]string{in[0], "", in[1]} // The middle one is of positions.
				all = w.add(all, table, ids[i])
			}
		}
	}
	return all
}

// gathersRows reports whether a Gather takes rows: its axis is 0, the default.
func gathersRows(n *onnxpb.NodeProto) bool {
	for _, a := range n.GetAttribute() {
		if name := a.GetName(); name == "axis" || name == "gather_axis" {
			return a.GetI() == 0
		}
	}
	return true
}

// maxSteps is the maximum number of operators between an input, or a weight, and a look-up that count as none.
const maxSteps = 8

// lookupWalk follows a graph's values to where they come from.
type lookupWalk struct {
	weights map[string][]int64
	made    map[string]*onnxpb.NodeProto
	inputs  map[string]bool
}

// add adds a look-up unless its table is made by an operator.
func (w lookupWalk) add(all []Lookup, table, ids string) []Lookup {
	for steps := 0; w.weights[table] == nil && steps <= maxSteps; steps++ {
		n := w.made[table]
		if kind := n.GetOpType(); kind != "DequantizeLinear" && kind != "Cast" || len(n.GetInput()) == 0 {
			return all
		}
		table = n.GetInput()[0]
	}
	dims := w.weights[table]
	if len(dims) != 2 {
		return all
	}
	l := Lookup{Weight: table, Rows: dims[0], Columns: dims[1], Input: w.direct(ids)}
	if l.Input == "" {
		l.From = w.source(ids, map[string]bool{})
	}
	return append(all, l)
}

// direct returns the input that a value is but for its type and shape, "" if it is none.
func (w lookupWalk) direct(name string) string {
	for range maxSteps {
		if w.inputs[name] {
			return name
		}
		n := w.made[name]
		switch n.GetOpType() {
		case "Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten":
			if len(n.GetInput()) == 0 {
				return ""
			}
			name = n.GetInput()[0]
		default:
			return ""
		}
	}
	return ""
}

// source returns an input from whose values, and not only its shape, a value follows.
func (w lookupWalk) source(name string, seen map[string]bool) string {
	if w.inputs[name] {
		return name
	}
	n := w.made[name]
	if seen[name] || n == nil || n.GetOpType() == "Shape" || n.GetOpType() == "Size" {
		return ""
	}
	seen[name] = true
	for _, in := range n.GetInput() {
		if from := w.source(in, seen); from != "" {
			return from
		}
	}
	return ""
}
