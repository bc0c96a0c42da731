package savedmodel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/savedmodel/flow"
	"github.com/faas-infer/faas-infer/model/savedmodel/rules"
	"github.com/faas-infer/faas-infer/model/shape"
)

// errEndless is the error of a graph that cannot be followed to its end.
var errEndless = fmt.Errorf("its loops and branches go through more than %d operators", maxSteps)

const (
	// maxPasses is the most passes of a loop that are followed one by one.
	maxPasses = 4096
	// maxNested is how deep loops and conditions may lie in each other.
	maxNested = 16
)

// controlling are the operators that decide what else is executed.
var controlling map[string]func(*evaluation, *flow.Node, []known) ([]known, int64, error)

func init() {
	controlling = map[string]func(*evaluation, *flow.Node, []known) ([]known, int64, error){
		"While": (*evaluation).while, "StatelessWhile": (*evaluation).while,
		"If": (*evaluation).branch, "StatelessIf": (*evaluation).branch,
		"Case": (*evaluation).branch, "StatelessCase": (*evaluation).branch,
		"Switch": pass(2), "RefSwitch": pass(2), "Enter": pass(1), "RefEnter": pass(1), "Exit": pass(1), "RefExit": pass(1),
		"NextIteration": pass(1), "RefNextIteration": pass(1), "LoopCond": pass(1),
	}
}

// pass gives the first input on, some times.
func pass(times int) func(*evaluation, *flow.Node, []known) ([]known, int64, error) {
	return func(_ *evaluation, _ *flow.Node, inputs []known) ([]known, int64, error) {
		return unnamed(slices.Repeat([]known{pick(inputs, 0)}, times)), -1, nil
	}
}

// taken is a Switch of which it is known where it goes: out of output 1 if the
// condition holds.
func taken(inputs []known) []known {
	out := []known{inputs[0], inputs[0]}
	out[0].dead, out[1].dead = inputs[1].Ints[0] != 0, inputs[1].Ints[0] == 0
	return out
}

// merge is whichever input is computed. Where only one is, it is no operator.
func (e *evaluation) merge(n *flow.Node, inputs []known, visit visitor) ([]known, int64, error) {
	var live []known
	index := rules.Value{Value: shape.Value{Elem: onnxpb.TensorProto_INT32, Shape: []int64{}}}
	for i, in := range inputs {
		if !in.dead {
			live, index.Ints = append(live, in), []int64{int64(i)}
		}
	}
	switch {
	case len(live) == 0:
		return []known{{dead: true}, {dead: true}}, 0, nil
	case len(live) == 1 && !n.Loops:
		return []known{live[0], {Value: index}}, 0, nil
	}
	out := live[0]
	for _, v := range live[1:] {
		out = join(out, v)
	}
	index.Ints = nil
	// What a loop brings back has the same shape, but for what it counts.
	out.Constant, out.Ints = nil, nil
	return show(visit, &call{n, inputs, []known{out, {Value: index}}, -1, true}), -1, nil
}

// inside runs a function's graph out of sight.
func (e *evaluation) inside(name string, given []known) ([]known, int64, error) {
	if e.steps--; e.steps < 0 {
		return nil, -1, errEndless
	}
	if e.depth >= maxNested {
		return nil, -1, fmt.Errorf("more than %d loops and conditions lie in each other", maxNested)
	}
	g, err := e.model.library.Function(name)
	if err != nil {
		return nil, -1, err
	}
	e.depth++
	defer func() { e.depth-- }()
	return e.run(g, given, unseen{})
}

// while follows a loop: pass by pass as long as its condition is known, as in a
// recurrent layer over a known number of steps, and else until nothing changes.
func (e *evaluation) while(n *flow.Node, inputs []known) ([]known, int64, error) {
	cond, body := n.Def.GetAttr()["cond"].GetFunc().GetName(), n.Def.GetAttr()["body"].GetFunc().GetName()
	vars, total := slices.Clone(inputs), int64(0)
	for pass := 0; pass < maxPasses && e.steps > reserve; pass++ {
		decided, flops, err := e.inside(cond, vars)
		if err != nil {
			return nil, -1, err
		}
		total = sum(total, flops)
		on := pick(decided, 0).Ints
		if len(on) != 1 || on[0] == shape.Unknown {
			break
		}
		if on[0] == 0 {
			return unnamed(vars), total, nil
		}
		next, flops, err := e.inside(body, vars)
		if err != nil {
			return nil, -1, err
		}
		vars, total = next, sum(total, flops)
	}
	return e.settle(n, body, vars)
}

// settle forgets what changes from pass to pass, until the rest stays.
func (e *evaluation) settle(n *flow.Node, body string, vars []known) ([]known, int64, error) {
	const enough = 8
	for range enough {
		next, _, err := e.inside(body, vars)
		if err != nil {
			return nil, -1, err
		}
		changed := len(next) != len(vars)
		for i := range min(len(next), len(vars)) {
			joined := join(vars[i], next[i])
			changed = changed || !alike(joined, vars[i])
			vars[i] = joined
		}
		if !changed {
			return unnamed(vars), -1, nil
		}
	}
	return lost(n), -1, nil
}

// lost is what comes out of a loop whose end was not found, as far as the file
// says it.
func lost(n *flow.Node) (out []known) {
	for i, s := range n.Def.GetAttr()["output_shapes"].GetList().GetShape() {
		v := known{}
		if i < len(n.Types) {
			v.Elem, v.Shape = rules.Element(n.Types[i]), rules.Shape(s)
		}
		out = append(out, v)
	}
	return out
}

// branch is If, whose first branch is for true, and Case, with one for each
// number. Of branches whose condition is not known, what they agree in is known.
func (e *evaluation) branch(n *flow.Node, inputs []known) ([]known, int64, error) {
	attributes := n.Def.GetAttr()
	names := []string{attributes["else_branch"].GetFunc().GetName(), attributes["then_branch"].GetFunc().GetName()}
	if list := attributes["branches"].GetList().GetFunc(); list != nil {
		names = nil
		for _, f := range list {
			names = append(names, f.GetName())
		}
	}
	if len(inputs) == 0 || len(names) == 0 {
		return nil, -1, errors.New("it has no condition or no branch; the file is damaged")
	}
	if at := inputs[0].Ints; len(at) == 1 && at[0] >= 0 && at[0] < int64(len(names)) {
		out, flops, err := e.inside(names[at[0]], inputs[1:])
		return unnamed(out), flops, err
	}
	var out []known
	for i, name := range names {
		results, _, err := e.inside(name, inputs[1:])
		if err != nil {
			return nil, -1, err
		}
		if i == 0 {
			out = results
		}
		for j := range min(len(out), len(results)) {
			out[j] = join(out[j], results[j])
		}
	}
	return unnamed(out), -1, nil
}

func unnamed(values []known) []known {
	out := slices.Clone(values)
	for i := range out {
		out[i].name, out[i].Constant = "", nil
	}
	return out
}

// join is what two values have in common.
func join(a, b known) known {
	out := a
	out.Shape = common(a.Shape, b.Shape)
	if !slices.Equal(a.Ints, b.Ints) || !slices.Equal(a.Shape, b.Shape) {
		out.Ints = nil
	}
	if a.List == nil || b.List == nil {
		out.List = nil
	} else if length := a.List.Length; true {
		if length != b.List.Length {
			length = -1
		}
		out.List = &rules.List{Element: common(a.List.Element, b.List.Element), Length: length}
	}
	return out
}

func common(a, b []int64) []int64 {
	if a == nil || len(a) != len(b) || b == nil {
		return nil
	}
	out := slices.Clone(a)
	for i, d := range b {
		if out[i] != d {
			out[i] = -1
		}
	}
	return out
}

func alike(a, b known) bool {
	same := slices.Equal(a.Shape, b.Shape) && (a.Shape == nil) == (b.Shape == nil) && slices.Equal(a.Ints, b.Ints)
	if a.List == nil || b.List == nil {
		return same && a.List == b.List
	}
	return same && slices.Equal(a.List.Element, b.List.Element) && a.List.Length == b.List.Length
}
