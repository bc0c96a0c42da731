package operator

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Graph is a model as its engine runs it: nodes in the order of their execution. Each
// node calls one of the distinct operators.
type Graph struct {
	Operators []*Operator
	Nodes     []Node
	// Inputs and Outputs are the model's.
	Inputs, Outputs []Operand
	// Assumed has one sentence for each dynamic dimension other than the batch. It
	// gives the assumed size, that of [model.Model.Sized].
	Assumed []string
	// Unknown names the nodes of whose operators only the shapes are known.
	Unknown []string

	weightBytes int64
	tensors     []lifetime
}

// Node is one call of an operator.
type Node struct {
	Name string
	// Operator is its index in the graph's Operators.
	Operator int
	// Inputs are the nodes whose outputs it reads, ascending.
	Inputs []int
}

// Unpredictable is the error for a model whose latency cannot be predicted from its
// operators. It must be measured whole.
type Unpredictable struct {
	// Nodes are the nodes that cause it, Why is the reason.
	Nodes []string
	Why   string
}

// Error names the nodes, or the first five.
func (u *Unpredictable) Error() string {
	const shown = 5
	names := strings.Join(u.Nodes[:min(shown, len(u.Nodes))], ", ")
	if more := len(u.Nodes) - shown; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("the model cannot be predicted from its operators: %s: %s; measure the model whole instead", names, u.Why)
}

// batches are the batch sizes at which a model is read. Two give a line, and the third
// shows whether a number really is linear in the batch.
var batches = [3]int{1, 2, 5}

// reading is one call of [Read].
type reading struct {
	at    [3]*model.Graph
	nodes []*onnxpb.NodeProto
	// optimised is true if the engine has folded constants already.
	optimised bool
	opsets    map[string]int64

	graph *Graph
	// folded names the initialisers, and the outputs of nodes that run only once,
	// when the model is loaded.
	folded   map[string]bool
	producer map[string]int // the node that computes a tensor
	tensor   map[string]int // a tensor's index in graph.tensors
	operator map[string]int // an operator's index by key
	weights  map[string]bool
	outputs  map[string]bool
}

// Read splits a model into its operators, without optimising it. Pass the graph that
// the engine runs, after its optimiser. Read leaves out only operators that depend on
// nothing but constants, because they run once, when the model is loaded.
//
// For a model that cannot be batched, the error is that of [model.Model.Graph]. It is an
// [*Unpredictable] for control flow, and for shapes that depend on more than the batch
// or not linearly on it.
func Read(m *model.Model) (*Graph, error) {
	return ReadSized(m, nil)
}

// ReadSized is [Read] with these sizes of free dimensions, as [model.Model.Sized] takes them.
func ReadSized(m *model.Model, shapes tensor.Shapes) (*Graph, error) {
	sized, assumed, err := m.Sized(shapes)
	if err != nil {
		return nil, err
	}
	r := newReading(sized)
	r.graph.Assumed = assumed
	err = r.look(sized.Graph)
	if err != nil && assumed != nil && !errors.Is(err, model.ErrNoBatch) {
		return nil, fmt.Errorf("%w (%s)", err, strings.Join(assumed, ", "))
	}
	if err != nil {
		return nil, err
	}
	return r.take()
}

// look infers the graph at the three batch sizes.
func (r *reading) look(at func(batch int) (*model.Graph, error)) (err error) {
	for i, b := range batches {
		if r.at[i], err = at(b); err != nil {
			return err
		}
	}
	return nil
}

// take makes the result from the graphs at the three batch sizes.
func (r *reading) take() (*Graph, error) {
	if flow := r.at[0].ControlFlow; len(flow) > 0 {
		return nil, &Unpredictable{flow, "control flow chooses the operators while the model runs"}
	}
	err := r.known()
	if err != nil {
		return nil, err
	}
	r.graph.Inputs, err = r.edges(func(g *model.Graph) []model.Value { return g.Inputs })
	if err != nil {
		return nil, err
	}
	for i := range r.at[0].Operators {
		if err := r.add(i); err != nil {
			return nil, err
		}
	}
	r.graph.Outputs, err = r.edges(func(g *model.Graph) []model.Value { return g.Outputs })
	r.keep()
	return r.graph, err
}

func emptyReading() *reading {
	return &reading{
		graph: new(Graph), opsets: make(map[string]int64),
		folded: make(map[string]bool), producer: make(map[string]int), tensor: make(map[string]int),
		operator: make(map[string]int), weights: make(map[string]bool), outputs: make(map[string]bool),
	}
}

func newReading(m *model.Model) *reading {
	g := m.Proto().GetGraph()
	r := emptyReading()
	r.nodes = g.GetNode()
	for _, o := range m.Proto().GetOpsetImport() {
		domain := o.GetDomain()
		if domain == "ai.onnx" {
			domain = ""
		}
		r.opsets[domain] = o.GetVersion()
	}
	// ONNX Runtime's optimiser imports this domain, and exporters do not.
	_, r.optimised = r.opsets[blocked]
	for _, t := range g.GetInitializer() {
		r.folded[t.GetName()] = true
	}
	for _, t := range g.GetSparseInitializer() {
		r.folded[t.GetValues().GetName()] = true
	}
	for _, o := range g.GetOutput() {
		r.outputs[o.GetName()] = true
	}
	return r
}

// blocked is the domain of ONNX Runtime's operators on blocked images.
const blocked = "com.microsoft.nchwc"

// known refuses a graph with unknown shapes. The error names the first nodes that have
// one.
func (r *reading) known() error {
	var custom, open []string
	unread := r.unread()
	for _, op := range r.at[0].Operators {
		complete := func(v model.Value) bool { return v.Shape != nil && !slices.Contains(v.Shape, -1) }
		if !slices.ContainsFunc(op.Outputs, func(v model.Value) bool { return !complete(v) && !unread[v.Name] }) ||
			slices.ContainsFunc(op.Inputs, func(v model.Value) bool { return !complete(v) }) {
			continue
		}
		if d := op.Node.GetDomain(); d != "" && d != "ai.onnx" && op.Outputs[0].Shape == nil {
			custom = append(custom, fmt.Sprintf("%s (%s)", op.Name, op.Type))
		} else {
			open = append(open, fmt.Sprintf("%s (%s)", op.Name, op.Type))
		}
	}
	switch {
	case len(custom) > 0:
		return &Unpredictable{custom, "the output and cost of these operators of another domain are unknown"}
	case len(open) > 0:
		return &Unpredictable{open, "the output shapes of these operators are only known while the model runs"}
	}
	return nil
}

// unread names the outputs that no node reads and that are not the model's.
func (r *reading) unread() map[string]bool {
	unread := make(map[string]bool)
	for _, n := range r.nodes {
		for _, o := range n.GetOutput() {
			unread[o] = !r.outputs[o]
		}
	}
	for _, n := range r.nodes {
		for _, in := range n.GetInput() {
			delete(unread, in)
		}
	}
	return unread
}

// edges are the model's inputs or outputs.
func (r *reading) edges(of func(*model.Graph) []model.Value) ([]Operand, error) {
	var all []Operand
	for i, v := range of(r.at[0]) {
		vs := [3]model.Value{v, of(r.at[1])[i], of(r.at[2])[i]}
		shape, err := shapes(vs)
		if err != nil {
			return nil, &Unpredictable{[]string{v.Name}, err.Error()}
		}
		all = append(all, Operand{Type: v.Type, Shape: shape})
		if _, known := r.tensor[v.Name]; !known && !r.folded[v.Name] {
			r.born(v.Name, all[i], -1)
		}
	}
	return all, nil
}
