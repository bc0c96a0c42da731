package flow

import (
	"fmt"

	pb "github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
)

// Node is one call of an operator, or something that is given.
type Node struct {
	// Name is the node's own, with the last calls that led to it before it where
	// another one of the graph has that name, too.
	Name string
	// Def is the node in the file; nil for what is given.
	Def *pb.NodeDef
	// Given is the place among the graph's Args.
	Given  int
	Inputs []Ref
	// Loops: the node has one more input, which comes from a later one.
	Loops bool
	// Types are those of the outputs, where the file tells them.
	Types []pb.DataType
	// Defaults are the attributes that its operator takes where a node leaves
	// them out, as far as the file tells them.
	Defaults map[string]*pb.AttrValue
	// Read says which outputs something reads.
	Read []bool

	frame *frame
	state state
	// next is the first input that is not yet before the node.
	next int
}

// Ref is one output of a node.
type Ref struct {
	Node   *Node
	Output int
}

// Graph is what computes some outputs.
type Graph struct {
	// Nodes are in an order in which they can be executed, but for a loop of
	// TensorFlow 1, which goes back.
	Nodes []*Node
	// Args are what is given: the tensors that are fed, a function's arguments.
	Args    []*Node
	Outputs []Ref
}

// Main is what computes the tensors fetched from those that are fed, both as a
// signature names them, "node:0".
func (l *Library) Main(graph *pb.GraphDef, fed, fetched []string) (*Graph, error) {
	r := newReach(l, body(graph.GetNode()), len(fed))
	for i, name := range fed {
		node, output, err := r.parse(r.root, name)
		if err != nil {
			return nil, fmt.Errorf("input: %w", err)
		}
		r.fed[feed{node, output}] = r.graph.Args[i]
	}
	return r.graph, r.fetch(fetched)
}

// Function is what computes the results of a function of the library, one that
// a loop or a condition executes.
func (l *Library) Function(name string) (*Graph, error) {
	if g, ok := l.graphs[name]; ok {
		return g, nil
	}
	f, ok := l.functions[name]
	if !ok {
		return nil, fmt.Errorf("there is no function %q in the file; it is damaged", name)
	}
	r := newReach(l, f, len(f.def.GetSignature().GetInputArg()))
	var results []string
	for _, arg := range f.def.GetSignature().GetOutputArg() {
		results = append(results, f.def.GetRet()[arg.GetName()])
	}
	if err := r.fetch(results); err != nil {
		return nil, fmt.Errorf("function %q: %w", name, err)
	}
	l.graphs[name] = r.graph
	return r.graph, nil
}

// feed is an output of a node of the graph itself.
type feed struct {
	node   *pb.NodeDef
	output int
}

// reach goes through a graph once.
type reach struct {
	library *Library
	graph   *Graph
	root    *frame
	fed     map[feed]*Node
	known   map[place]Ref
	nodes   map[occurrence]*Node
	frames  int
	// later are the nodes at the end of a loop's body.
	later []*Node
}

// occurrence is a node in one call of its function.
type occurrence struct {
	frame *frame
	node  *pb.NodeDef
}

func newReach(l *Library, f *function, given int) *reach {
	r := &reach{
		library: l, graph: new(Graph), fed: make(map[feed]*Node), known: make(map[place]Ref),
		nodes: make(map[occurrence]*Node),
		root:  &frame{function: f, inner: make(map[*pb.NodeDef]*frame)},
	}
	for i := range given {
		r.graph.Args = append(r.graph.Args, &Node{Given: i, state: done})
	}
	return r
}

// node is the one that stands for a node in a call of its function.
func (r *reach) node(f *frame, def *pb.NodeDef) (*Node, error) {
	key := occurrence{f, def}
	n, ok := r.nodes[key]
	if !ok {
		if len(r.nodes) >= maxNodes {
			return nil, fmt.Errorf("the graph has more than %d nodes", maxNodes)
		}
		n = &Node{Def: def, Types: r.library.types(def), Defaults: r.library.defaults[def.GetOp()], frame: f}
		r.nodes[key] = n
	}
	return n, nil
}

func (r *reach) fetch(tensors []string) error {
	for _, name := range tensors {
		ref, err := r.resolve(place{r.root, name})
		if err != nil {
			return err
		}
		ref.Node.read(ref.Output)
		if err := r.visit(ref.Node); err != nil {
			return err
		}
		r.graph.Outputs = append(r.graph.Outputs, ref)
	}
	for len(r.later) > 0 {
		n := r.later[0]
		r.later = r.later[1:]
		if err := r.visit(n); err != nil {
			return err
		}
	}
	r.name()
	return nil
}

// state is how far a node is while the graph is put in order.
type state uint8

const (
	unseen state = iota
	open
	done
)

// visit puts a node behind all that it reads. It keeps its own stack: a chain
// of nodes can be longer than what a goroutine's holds.
func (r *reach) visit(n *Node) error {
	if n.state == done {
		return nil
	}
	stack := []*Node{n}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		if n.state == unseen {
			n.state = open
			if err := r.link(n); err != nil {
				return err
			}
		}
		for n.next < len(n.Inputs) && n.Inputs[n.next].Node.state == done {
			n.next++
		}
		switch {
		case n.next == len(n.Inputs):
			stack = stack[:len(stack)-1]
			if n.state != done {
				n.state = done
				r.graph.Nodes = append(r.graph.Nodes, n)
			}
		case n.Inputs[n.next].Node.state == open:
			return fmt.Errorf("node %q is computed from itself; the file is damaged", n.Def.GetName())
		default:
			stack = append(stack, n.Inputs[n.next].Node)
		}
	}
	return nil
}

// link finds what a node reads.
func (r *reach) link(n *Node) error {
	for _, name := range inputs(n.Def) {
		ref, err := r.resolve(place{n.frame, name})
		if err != nil {
			return err
		}
		if n.Def.GetOp() == "Merge" && ref.Node.Def.GetOp() == "NextIteration" {
			n.Loops = true
			r.later = append(r.later, ref.Node)
			continue
		}
		ref.Node.read(ref.Output)
		n.Inputs = append(n.Inputs, ref)
	}
	return nil
}

func (n *Node) read(output int) {
	for len(n.Read) <= output {
		n.Read = append(n.Read, false)
	}
	n.Read[output] = true
}

// name gives every node its own name, and where several have the same one as
// many of the calls before it that led there as tell them apart.
func (r *reach) name() {
	taken := make(map[string]bool, len(r.graph.Nodes))
	left := r.graph.Nodes
	for calls := 0; len(left) > 0; calls++ {
		same := make(map[string]int, len(left))
		for _, n := range left {
			n.Name = n.frame.last(calls) + n.Def.GetName()
			same[n.Name]++
		}
		var again []*Node
		for _, n := range left {
			switch {
			case same[n.Name] == 1 && !taken[n.Name]:
				taken[n.Name] = true
			case calls <= maxDepth:
				again = append(again, n)
			default:
				for long, i := n.Name, 1; taken[n.Name]; i++ {
					n.Name = fmt.Sprintf("%s_%d", long, i)
				}
				taken[n.Name] = true
			}
		}
		left = again
	}
}

// last are the last calls that led to a frame.
func (f *frame) last(calls int) string {
	if calls == 0 || f.caller == nil {
		return ""
	}
	return f.caller.last(calls-1) + f.call.GetName() + "/"
}
