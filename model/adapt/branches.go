package adapt

import (
	"fmt"
	"maps"
	"slices"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// branches finds an operator that decides for a whole batch what depends on a request's
// numbers, or on the number of rows: If, or how often a Loop runs. Sample rows may all decide
// alike. It is "" if there is none.
func (n *Natural) branches() string {
	g := n.Model.Proto().GetGraph()
	depends := make(map[string]bool)
	for _, in := range n.Inputs {
		depends[in.Name] = true
	}
	return decides(g, depends, constantsOf(g))
}

// decides looks for such an operator in a graph. depends holds the values that depend on
// requests; those of the graph's own are added.
func decides(g *onnxpb.GraphProto, depends map[string]bool, constants map[string][]int64) string {
	for _, node := range g.GetNode() {
		in, kind := node.GetInput(), node.GetOpType()
		tainted := slices.ContainsFunc(in, func(name string) bool { return depends[name] })
		switch kind {
		case "If":
			if len(in) > 0 && depends[in[0]] {
				return decided(node)
			}
		case "Loop":
			if len(in) > 1 && (depends[in[0]] || depends[in[1]]) || endsItself(node, tainted) {
				return decided(node)
			}
		case "Gather": // Of a shape, all but the first size are not the number of rows.
			if i, known := constants[second(in)]; known && isShape(g, in[0]) && !slices.Contains(i, 0) {
				tainted = false
			}
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
			if why := decides(a.GetG(), inside, constantsOf(a.GetG())); why != "" {
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
