package adapt

import (
	"fmt"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// Crossing says why the graph makes the rows of a batch see each other, as far as its
// operators show that: "" if they do not. It finds what random rows may hide. axes are the
// positions of the batch in the inputs.
//
//   - Dynamic quantisation takes one scale from the whole batch, so a large row makes its
//     neighbours coarse.
//   - A BatchNormalization in training mode takes its mean from the batch.
//   - An If, the end of a Loop or a size that depends on a request decides for all rows at once.
//   - A reduction, a search or a sum along the batch mixes rows.
func (n *Natural) Crossing(axes []int) string {
	g := n.Model.Proto().GetGraph()
	constant := make(map[string]bool)
	for _, t := range g.GetInitializer() {
		constant[t.GetName()] = true
	}
	for _, node := range g.GetNode() {
		name := nameOf(node)
		switch node.GetOpType() {
		case "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM":
			if len(node.GetInput()) > 0 && !constant[node.GetInput()[0]] {
				return fmt.Sprintf("the operator %s (%s) takes one scale from all rows; quantise statically (QDQ) or only the weights to have it batched", name, node.GetOpType())
			}
		case "BatchNormalization":
			if model.Attribute(node, "training_mode") == 1 {
				return fmt.Sprintf("the operator %s (%s) runs in training mode, which takes the mean of all rows; export the model in evaluation mode", name, node.GetOpType())
			}
		}
	}
	if why := n.branches(); why != "" {
		return why
	}
	return n.alongBatch(axes)
}

// nameOf is a node's name, or that of its first output.
func nameOf(node *onnxpb.NodeProto) string {
	if node.GetName() == "" && len(node.GetOutput()) > 0 {
		return node.GetOutput()[0]
	}
	return node.GetName()
}

// alongBatch finds an operator that reduces the first axis of an input whose batch that is.
// It follows values from such inputs through operators that keep the rank.
func (n *Natural) alongBatch(axes []int) string {
	rank := make(map[string]int)
	for i, in := range n.Inputs {
		if axes[i] == 0 {
			rank[in.Name] = len(in.Shape)
		}
	}
	shapes := constantsOf(n.Model.Proto().GetGraph())
	for _, node := range n.Model.Proto().GetGraph().GetNode() {
		if len(node.GetInput()) == 0 || rank[node.GetInput()[0]] == 0 {
			continue
		}
		from := rank[node.GetInput()[0]]
		along, reduces := reduced(node, from, shapes)
		if reduces {
			for _, a := range along {
				if a == 0 || a == -int64(from) {
					return fmt.Sprintf("the operator %s (%s) works along the batch axis", node.GetOutput()[0], node.GetOpType())
				}
			}
			continue
		}
		if keepsRows[node.GetOpType()] {
			for _, o := range node.GetOutput() {
				rank[o] = from
			}
		}
	}
	return ""
}

// keepsRows holds operators whose output has the rows and the rank of their first input.
var keepsRows = map[string]bool{
	"Identity": true, "Cast": true, "Relu": true, "Sigmoid": true, "Tanh": true, "Sqrt": true, "Exp": true, "Log": true,
	"Neg": true, "Abs": true, "Clip": true, "LeakyRelu": true, "Erf": true, "Softplus": true, "Dropout": true,
	"Gemm": true, "BatchNormalization": true, "LayerNormalization": true, "Conv": true, "MaxPool": true, "AveragePool": true,
}

// reduced returns the axes along which an operator mixes elements, and whether it is of that kind.
func reduced(node *onnxpb.NodeProto, rank int, constants map[string][]int64) ([]int64, bool) {
	switch node.GetOpType() {
	case "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare":
		var axes []int64
		for _, a := range node.GetAttribute() {
			if a.GetName() == "axes" {
				axes = a.GetInts()
			}
		}
		if len(node.GetInput()) > 1 && node.GetInput()[1] != "" {
			var known bool
			if axes, known = constants[node.GetInput()[1]]; !known {
				return nil, true
			}
		}
		if len(axes) == 0 && model.Attribute(node, "noop_with_empty_axes") != 1 {
			axes = []int64{0}
		}
		return axes, true
	case "CumSum":
		if len(node.GetInput()) < 2 {
			return nil, true
		}
		return constants[node.GetInput()[1]], true
	case "ArgMax", "ArgMin":
		return []int64{model.Attribute(node, "axis")}, true
	case "Softmax", "LogSoftmax", "Hardmax":
		for _, a := range node.GetAttribute() {
			if a.GetName() == "axis" {
				return []int64{a.GetI()}, true
			}
		}
		return nil, true
	}
	return nil, false
}

func constantsOf(g *onnxpb.GraphProto) map[string][]int64 {
	out := make(map[string][]int64)
	for _, t := range g.GetInitializer() {
		if v := int64s(t); v != nil {
			out[t.GetName()] = v
		}
	}
	for _, n := range g.GetNode() {
		if n.GetOpType() != "Constant" || len(n.GetOutput()) != 1 {
			continue
		}
		for _, a := range n.GetAttribute() {
			switch {
			case a.GetName() == "value" && int64s(a.GetT()) != nil:
				out[n.GetOutput()[0]] = int64s(a.GetT())
			case a.GetName() == "value_ints":
				out[n.GetOutput()[0]] = a.GetInts()
			case a.GetName() == "value_int":
				out[n.GetOutput()[0]] = []int64{a.GetI()}
			}
		}
	}
	return out
}
