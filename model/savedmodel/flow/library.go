// Package flow finds what one signature of a SavedModel reaches: the nodes from
// which its outputs are computed, with the functions that they call put in the
// place of the calls, in an order in which they can be executed. Nodes that only
// pass a tensor on are left out, and so are those that nothing of it reads: a
// graph's training, its savers, its initialisers.
package flow

import (
	"fmt"
	"slices"

	pb "github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
)

const (
	// maxOutputs is the most outputs of a node, far above what there is.
	maxOutputs = 1 << 12
	// maxNodes and maxFrames bound what calls of calls can grow to, maxDepth
	// how deep they go: a small file can describe an endless graph.
	maxNodes  = 1 << 18
	maxFrames = 1 << 16
	maxDepth  = 64
)

// Library is a graph's functions, and what the file says of its operators.
type Library struct {
	functions map[string]*function
	ops       map[string]*pb.OpDef
	// defaults are what operators take for attributes that a node leaves out.
	defaults map[string]map[string]*pb.AttrValue
	graphs   map[string]*Graph
}

// function is a body that nodes can call: one of the library, or the graph
// itself, whose def is nil.
type function struct {
	def   *pb.FunctionDef
	nodes map[string]*pb.NodeDef
	args  map[string]int
}

// NewLibrary reads the library of a graph.
func NewLibrary(meta *pb.MetaGraphDef) *Library {
	l := &Library{
		functions: make(map[string]*function), ops: make(map[string]*pb.OpDef), graphs: make(map[string]*Graph),
		defaults: make(map[string]map[string]*pb.AttrValue),
	}
	for _, op := range meta.GetMetaInfoDef().GetStrippedOpList().GetOp() {
		l.ops[op.GetName()] = op
		defaults := make(map[string]*pb.AttrValue, len(op.GetAttr()))
		for _, a := range op.GetAttr() {
			if a.GetDefaultValue() != nil {
				defaults[a.GetName()] = a.GetDefaultValue()
			}
		}
		l.defaults[op.GetName()] = defaults
	}
	for _, def := range meta.GetGraphDef().GetLibrary().GetFunction() {
		f := body(def.GetNodeDef())
		f.def = def
		for i, arg := range def.GetSignature().GetInputArg() {
			f.args[arg.GetName()] = i
		}
		l.functions[def.GetSignature().GetName()] = f
	}
	return l
}

func body(nodes []*pb.NodeDef) *function {
	f := &function{nodes: make(map[string]*pb.NodeDef, len(nodes)), args: make(map[string]int)}
	for _, n := range nodes {
		f.nodes[n.GetName()] = n
	}
	return f
}

// called is the function that a node stands for; nil if it is an operator.
func (l *Library) called(n *pb.NodeDef) (*function, error) {
	name := n.GetOp()
	switch name {
	case "PartitionedCall", "StatefulPartitionedCall", "StatelessCall":
		name = n.GetAttr()["f"].GetFunc().GetName()
	default:
		// Older files name the function where others name the operator.
		return l.functions[name], nil
	}
	f, ok := l.functions[name]
	if !ok {
		return nil, fmt.Errorf("node %q calls the function %q, which the file does not have; it is damaged", n.GetName(), name)
	}
	return f, nil
}

// results describes a node's outputs; nil if the file does not.
func (l *Library) results(n *pb.NodeDef) []*pb.OpDef_ArgDef {
	if op, ok := l.ops[n.GetOp()]; ok {
		return op.GetOutputArg()
	}
	if f, ok := l.functions[n.GetOp()]; ok {
		return f.def.GetSignature().GetOutputArg()
	}
	return nil
}

// output is the place among a node's outputs of number i of those that its
// operator calls by a name, as "output:1" in a function's body.
func (l *Library) output(n *pb.NodeDef, name string, i int) (int, error) {
	all, at := l.results(n), 0
	for _, arg := range all {
		if arg.GetName() == name {
			return at + i, nil
		}
		at += len(l.argTypes(n, arg))
	}
	if all == nil {
		return i, nil // Nearly all operators have one output.
	}
	return 0, fmt.Errorf("node %q (%s) has no output %q", n.GetName(), n.GetOp(), name)
}

// types are those of a node's outputs, DT_INVALID where the file does not say.
func (l *Library) types(n *pb.NodeDef) []pb.DataType {
	var all []pb.DataType
	for _, arg := range l.results(n) {
		all = append(all, l.argTypes(n, arg)...)
		if len(all) > maxOutputs {
			break
		}
	}
	return all
}

func (l *Library) argTypes(n *pb.NodeDef, arg *pb.OpDef_ArgDef) []pb.DataType {
	attribute := func(name string) *pb.AttrValue {
		if a, ok := n.GetAttr()[name]; ok {
			return a
		}
		return l.defaults[n.GetOp()][name]
	}
	if list := arg.GetTypeListAttr(); list != "" {
		return attribute(list).GetList().GetType()
	}
	kind, count := arg.GetType(), int64(1)
	if of := arg.GetTypeAttr(); of != "" {
		kind = attribute(of).GetType()
	}
	if of := arg.GetNumberAttr(); of != "" {
		count = min(max(attribute(of).GetI(), 0), maxOutputs)
	}
	return slices.Repeat([]pb.DataType{kind}, int(count))
}
