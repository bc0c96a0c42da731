package savedmodel

import (
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/model/savedmodel/flow"
	"github.com/faas-infer/faas-infer/model/savedmodel/rules"
	"github.com/faas-infer/faas-infer/model/shape"
)

// known is what is known of a tensor, and what it is called.
type known struct {
	rules.Value
	name string
	// dead: the branch that computes it is not taken.
	dead bool
}

// maxSteps is the most nodes that one look at a graph goes through in loops and
// branches. The passes of loops may take all but the reserve of them.
const (
	maxSteps = 1 << 17
	reserve  = maxSteps / 4
)

// evaluation infers a graph's shapes once.
type evaluation struct {
	model *Model
	// steps are those that are left.
	steps int
	depth int
}

// visitor is told what a graph consists of, and says what tensors are called.
type visitor interface {
	// operator is told of a call once its outputs are known, and names them.
	operator(c *call) []string
	// weight names a variable or a constant.
	weight(n *flow.Node) string
}

// call is one execution of an operator.
type call struct {
	node            *flow.Node
	inputs, outputs []known
	// flops is -1 if it is not known.
	flops int64
	// control: what else is executed depends on it, or is inside it.
	control bool
}

// unseen is the visitor of what is inside an operator.
type unseen struct{}

func (unseen) operator(*call) []string  { return nil }
func (unseen) weight(*flow.Node) string { return "" }

// run goes through a graph in order and returns its outputs, and the FLOPs of
// all operators, -1 if one's are not known.
func (e *evaluation) run(g *flow.Graph, given []known, visit visitor) ([]known, int64, error) {
	values := make(map[*flow.Node][]known, len(g.Nodes))
	for i, n := range g.Args {
		values[n] = []known{{}}
		if i < len(given) {
			values[n][0] = given[i]
		}
	}
	total := int64(0)
	for _, n := range g.Nodes {
		var inputs []known
		for _, in := range n.Inputs {
			inputs = append(inputs, pick(values[in.Node], in.Output))
		}
		outputs, flops, err := e.node(n, inputs, visit)
		if err != nil {
			return nil, -1, err
		}
		values[n] = outputs
		total = sum(total, flops)
	}
	var out []known
	for _, ref := range g.Outputs {
		out = append(out, pick(values[ref.Node], ref.Output))
	}
	return out, total, nil
}

func pick(values []known, i int) known {
	if i < len(values) {
		return values[i]
	}
	return known{}
}

// sum adds counts: -1 if either is not known, saturating.
func sum(a, b int64) int64 {
	if a < 0 || b < 0 {
		return -1
	}
	return max(a+b, a|b) // An overflow is negative.
}

// node infers one node; what is no operator is not shown to the visitor.
func (e *evaluation) node(n *flow.Node, inputs []known, visit visitor) ([]known, int64, error) {
	if e.steps--; e.steps < 0 {
		return nil, -1, errEndless
	}
	op, to := n.Def.GetOp(), pick(inputs, 1).Ints
	switch {
	case op == "Const":
		v := e.constant(n)
		v.name = visit.weight(n)
		return []known{v}, 0, nil
	case variables[op]:
		v := variable(n)
		v.name = visit.weight(n)
		return []known{v}, 0, nil
	case op == "Merge":
		return e.merge(n, inputs, visit)
	case slices.ContainsFunc(inputs, func(v known) bool { return v.dead }):
		return slices.Repeat([]known{{dead: true}}, len(n.Read)), 0, nil
	case op == "Switch" && len(to) == 1 && to[0] != shape.Unknown:
		return taken(inputs), 0, nil
	}
	outputs, flops, control, err := e.infer(n, inputs)
	if err != nil {
		return nil, -1, fmt.Errorf("operator %q (%s) cannot run: %w", n.Name, op, err)
	}
	return show(visit, &call{n, inputs, outputs, flops, control}), flops, nil
}

// show shows a call to the visitor and returns its outputs with their names.
func show(visit visitor, c *call) []known {
	for len(c.outputs) < len(c.node.Read) {
		c.outputs = append(c.outputs, known{})
	}
	for i, name := range visit.operator(c) {
		c.outputs[i].name = name
	}
	return c.outputs
}

func (e *evaluation) infer(n *flow.Node, inputs []known) (outputs []known, flops int64, control bool, err error) {
	if infer, ok := controlling[n.Def.GetOp()]; ok {
		outputs, flops, err = infer(e, n, inputs)
		return outputs, flops, true, err
	}
	c := &rules.Call{Op: n.Def.GetOp(), Attributes: n.Def.GetAttr(), Types: n.Types}
	for _, in := range inputs {
		c.Inputs = append(c.Inputs, in.Value)
	}
	inferred, _, err := c.Infer()
	if err != nil {
		return nil, -1, false, err
	}
	for _, v := range inferred {
		v.Constant = nil
		outputs = append(outputs, known{Value: v})
	}
	return outputs, c.Cost(inferred), false, nil
}

func (e *evaluation) constant(n *flow.Node) known {
	t, ok := e.model.constants[n.Def]
	if !ok {
		t = constant(n.Def)
		e.model.constants[n.Def] = t
	}
	return known{Value: rules.Value{Value: shape.OfTensor(t)}}
}
