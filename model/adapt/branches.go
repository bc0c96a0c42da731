package adapt

import (
	"fmt"
	"maps"
	"slices"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// branches finds an operator that decides for a whole batch what depends on a request's
// numbers, or on the number of rows: If, how often a Loop runs, or a size. Sample rows may all
// decide alike. It is "" if there is none.
func (n *Natural) branches() string {
	for _, check := range []rule{decides, resizes} {
		depends := make(map[string]bool)
		for _, in := range n.Inputs {
			depends[in.Name] = true
		}
		if why := follow(n.Model.Proto().GetGraph(), depends, check); why != "" {
			return why
		}
	}
	return ""
}

// scope is a graph that [follow] looks at.
type scope struct {
	graph *onnxpb.GraphProto
	// depends holds the values that depend on requests, constants the small integers.
	depends   map[string]bool
	constants map[string][]int64
}

// rule says of an operator what is wrong with it, and whether its outputs depend on requests.
type rule func(node *onnxpb.NodeProto, s scope) (why string, depends bool)

// follow applies a rule to the operators of a graph and of those inside. depends holds the values
// that depend on requests; those of the graph's own are added.
func follow(g *onnxpb.GraphProto, depends map[string]bool, check rule) string {
	s := scope{g, depends, constantsOf(g)}
	for _, node := range g.GetNode() {
		why, tainted := check(node, s)
		if why != "" {
			return why
		}
		for _, a := range node.GetAttribute() {
			if a.GetG() == nil {
				continue
			}
			inside := maps.Clone(depends)
			if tainted {
				for _, v := range a.GetG().GetInput() {
					inside[v.GetName()] = true
				}
			}
			if why := follow(a.GetG(), inside, check); why != "" {
				return why
			}
			tainted = tainted || slices.ContainsFunc(a.GetG().GetOutput(), func(v *onnxpb.ValueInfoProto) bool { return inside[v.GetName()] })
		}
		if tainted {
			for _, o := range node.GetOutput() {
				depends[o] = true
			}
		}
	}
	return ""
}

// decides is the rule of [Natural.branches].
func decides(node *onnxpb.NodeProto, s scope) (why string, depends bool) {
	in := node.GetInput()
	tainted := slices.ContainsFunc(in, func(name string) bool { return s.depends[name] })
	switch node.GetOpType() {
	case "If":
		if len(in) > 0 && s.depends[in[0]] {
			return decided(node), true
		}
	case "Loop":
		if len(in) > 1 && (s.depends[in[0]] || s.depends[in[1]]) || endsItself(node, tainted) {
			return decided(node), true
		}
	case "Gather": // Of a shape, all but the first size are not the number of rows.
		if i, known := s.constants[second(in)]; known && isShape(s.graph, in[0]) && !slices.Contains(i, 0) {
			tainted = false
		}
	}
	return "", tainted
}

// sizes are the inputs of operators whose numbers decide how large an output is. All rows of a
// batch have the sizes in common, so one row decides for its neighbours.
var sizes = map[string][]int{
	"Range": {0, 1, 2}, "ConstantOfShape": {0}, "Reshape": {1}, "Expand": {1}, "Tile": {1}, "Slice": {1, 2, 3, 4},
	"Pad": {1}, "Resize": {1, 2, 3}, "Upsample": {1}, "TopK": {1}, "OneHot": {1}, "Split": {1}, "SplitToSequence": {1},
	"CenterCropPad": {1}, "AffineGrid": {1}, "Unique": {0}, "StringSplit": {0},
}

// resizes is the rule that finds an operator that makes a size of a request's numbers, such as
// the length of the longest row, or the most words in one. The shapes of requests do not count.
func resizes(node *onnxpb.NodeProto, s scope) (why string, depends bool) {
	kind, in := node.GetOpType(), node.GetInput()
	at := sizes[kind]
	if kind == "StringNormalizer" && slices.ContainsFunc(node.GetAttribute(), func(a *onnxpb.AttributeProto) bool { return len(a.GetStrings()) > 0 }) {
		at = []int{0} // It removes words.
	}
	for _, at := range at {
		if at < len(in) && s.depends[in[at]] {
			return fmt.Sprintf("the operator %s (%s) makes one size for all rows of a batch out of their numbers", nameOf(node), kind), true
		}
	}
	if kind == "Shape" || kind == "Size" {
		return "", false
	}
	return "", slices.ContainsFunc(in, func(name string) bool { return s.depends[name] })
}

// Compared are the integers that the graph compares a scalar input with, such as the sampling
// rates for which it has branches.
func (n *Natural) Compared() (values []int64) {
	g := n.Model.Proto().GetGraph()
	constants, scalar := constantsOf(g), make(map[string]bool)
	for _, in := range n.Inputs {
		scalar[in.Name] = len(in.Shape) == 0 && !in.Type.Float()
	}
	for _, node := range g.GetNode() {
		in := node.GetInput()
		if node.GetOpType() != "Equal" || len(in) != 2 {
			continue
		}
		for i, name := range in {
			if of, ok := constants[in[1-i]]; ok && scalar[name] && len(of) == 1 {
				values = append(values, of[0])
			}
		}
	}
	return values
}

func decided(node *onnxpb.NodeProto) string {
	return fmt.Sprintf("the operator %s (%s) decides for all rows of a batch at once", nameOf(node), node.GetOpType())
}

// endsItself reports whether the body of a Loop computes from requests when the loop ends.
func endsItself(loop *onnxpb.NodeProto, tainted bool) bool {
	for _, a := range loop.GetAttribute() {
		body := a.GetG()
		if body == nil || len(body.GetOutput()) == 0 || !tainted {
			continue
		}
		condition := body.GetOutput()[0].GetName()
		for _, n := range body.GetNode() {
			if slices.Contains(n.GetOutput(), condition) {
				return n.GetOpType() != "Identity" && n.GetOpType() != "Constant" && n.GetOpType() != "Cast"
			}
		}
	}
	return false
}

// isShape reports whether a value is the output of Shape.
func isShape(g *onnxpb.GraphProto, name string) bool {
	return slices.ContainsFunc(g.GetNode(), func(n *onnxpb.NodeProto) bool {
		return n.GetOpType() == "Shape" && slices.Contains(n.GetOutput(), name)
	})
}

func second(names []string) string {
	if len(names) < 2 {
		return ""
	}
	return names[1]
}
