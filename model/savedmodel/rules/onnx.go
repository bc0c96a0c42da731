package rules

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/shape"
)

// opset is the version of the ONNX operators that TensorFlow's are seen as.
const opset = 18

// twin is the ONNX node that computes the same.
type twin struct {
	node   *onnxpb.NodeProto
	inputs []shape.Value
	// back is the order of the output's dimensions in TensorFlow; nil if it is
	// the same.
	back []int
}

// translation makes a node's twin; nil if that depends on what is not known.
type translation func(*Call) (*twin, error)

// as is the rule of an operator that ONNX has, too.
func as(t translation) rule {
	return rule{
		infer: func(c *Call) ([]Value, error) {
			_, out, err := twinOutputs(c, t)
			return out, err
		},
		cost: func(c *Call, _ []Value) int64 {
			w, _, err := twinOutputs(c, t)
			if w == nil || err != nil {
				return -1
			}
			out, _, err := shape.Infer(w.node, opset, w.inputs)
			if err != nil {
				return -1
			}
			return shape.Cost(w.node, w.inputs, out)
		},
	}
}

func twinOutputs(c *Call, t translation) (*twin, []Value, error) {
	w, err := t(c)
	if w == nil || err != nil {
		return nil, nil, err
	}
	inferred, _, err := shape.Infer(w.node, opset, w.inputs)
	if err != nil {
		return nil, nil, err
	}
	out := make([]Value, len(inferred))
	for i, v := range inferred {
		if i == 0 && w.back != nil {
			v.Shape = permuted(v.Shape, w.back)
		}
		out[i].Value = v
	}
	return w, out, nil
}

func permuted(dims []int64, order []int) []int64 {
	if len(dims) != len(order) {
		return nil
	}
	out := make([]int64, len(dims))
	for i, from := range order {
		out[i] = dims[from]
	}
	return out
}

// newTwin is an ONNX node with one output.
func newTwin(op string, inputs []shape.Value, attributes ...*onnxpb.AttributeProto) *twin {
	node := &onnxpb.NodeProto{OpType: &op, Output: []string{"y"}, Attribute: attributes}
	for i := range inputs {
		node.Input = append(node.Input, fmt.Sprint("x", i))
	}
	return &twin{node: node, inputs: inputs}
}

func (w *twin) outputs(n int) *twin {
	for i := len(w.node.Output); i < n; i++ {
		w.node.Output = append(w.node.Output, fmt.Sprint("y", i))
	}
	return w
}

func withInt(name string, v int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, I: &v, Type: onnxpb.AttributeProto_INT.Enum()}
}

func withInts(name string, v []int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Ints: v, Type: onnxpb.AttributeProto_INTS.Enum()}
}

func withText(name, v string) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, S: []byte(v), Type: onnxpb.AttributeProto_STRING.Enum()}
}

func plain(values []Value) []shape.Value {
	out := make([]shape.Value, len(values))
	for i, v := range values {
		out[i] = v.Value
	}
	return out
}

// same is the ONNX operator of that name on the same inputs.
func same(op string) translation {
	return func(c *Call) (*twin, error) { return newTwin(op, plain(c.Inputs)), nil }
}

// sameOf is same on the first n inputs.
func sameOf(op string, n int) translation {
	return func(c *Call) (*twin, error) { return newTwin(op, plain(c.Inputs[:min(n, len(c.Inputs))])), nil }
}

// reduction reduces the axes in the second input; none means none.
func reduction(op string) translation {
	return func(c *Call) (*twin, error) {
		axes := c.in(1).Value
		axes.Shape = []int64{axes.Elements()} // One axis may be a scalar.
		keep := int64(0)
		if c.flag("keep_dims") {
			keep = 1
		}
		return newTwin(op, []shape.Value{c.in(0).Value, axes}, withInt("keepdims", keep), withInt("noop_with_empty_axes", 1)), nil
	}
}

// along is an operator whose axis is in an input, from the end if it is
// negative, and an attribute in ONNX.
func along(op string, input int, attributes ...*onnxpb.AttributeProto) translation {
	return func(c *Call) (*twin, error) {
		i := input
		if i < 0 {
			i += len(c.Inputs)
		}
		at, ok := c.scalar(i)
		if !ok || i >= len(c.Inputs) {
			return nil, nil
		}
		inputs := slices.Delete(plain(c.Inputs), i, i+1)
		return newTwin(op, inputs, append(slices.Clone(attributes), withInt("axis", at))...), nil
	}
}

func expandDims(c *Call) (*twin, error) {
	at, ok := c.scalar(1)
	if !ok {
		return nil, nil
	}
	return newTwin("Unsqueeze", []shape.Value{c.in(0).Value}, withInts("axes", []int64{at})), nil
}

func squeeze(c *Call) (*twin, error) {
	axes := c.list("squeeze_dims")
	if len(axes) == 0 {
		return newTwin("Squeeze", []shape.Value{c.in(0).Value}), nil
	}
	return newTwin("Squeeze", []shape.Value{c.in(0).Value}, withInts("axes", axes)), nil
}

func reshape(c *Call) (*twin, error) {
	return newTwin("Reshape", []shape.Value{c.in(0).Value, c.in(1).Value}, withInt("allowzero", 1)), nil
}

func transpose(c *Call) (*twin, error) {
	order := c.ints(1)
	if order == nil {
		return nil, nil
	}
	return newTwin("Transpose", []shape.Value{c.in(0).Value}, withInts("perm", order)), nil
}

func split(c *Call) (*twin, error) {
	at, ok := c.scalar(0)
	n := c.count("num_split")
	if !ok || n == 0 {
		return nil, nil
	}
	return newTwin("Split", []shape.Value{c.in(1).Value}, withInt("axis", at)).outputs(n), nil
}

// splitSizes is SplitV; one of its sizes may be -1 for what is left.
func splitSizes(c *Call) (*twin, error) {
	x, sizes := c.in(0), slices.Clone(c.ints(1))
	at, ok := c.scalar(2)
	if !ok || sizes == nil || len(sizes) > maxOutputs || x.Shape == nil {
		return nil, nil
	}
	i, err := axis(at, len(x.Shape))
	if err != nil {
		return nil, err
	}
	if rest := slices.Index(sizes, -1); rest >= 0 {
		sizes[rest] = 0
		left := x.Shape[i]
		for _, s := range sizes {
			if left -= s; s < 0 || left < 0 {
				return nil, nil
			}
		}
		sizes[rest] = left
	}
	return newTwin("Split", []shape.Value{x.Value}, withInt("axis", at), withInts("split", sizes)).outputs(len(sizes)), nil
}

func oneHot(c *Call) (*twin, error) {
	at := int64(-1)
	if a, ok := c.Attributes["axis"]; ok {
		at = a.GetI()
	}
	return newTwin("OneHot", plain(c.Inputs[:min(3, len(c.Inputs))]), withInt("axis", at)), nil
}

// topK gives values and places, which are of 32 bits unless the node says so.
func topK(c *Call) ([]Value, error) {
	_, out, err := twinOutputs(c, func(c *Call) (*twin, error) {
		return newTwin("TopK", plain(c.Inputs[:min(2, len(c.Inputs))])).outputs(2), nil
	})
	if err != nil {
		return nil, err
	}
	out[1].Elem = onnxpb.TensorProto_INT32
	return out, nil
}

func gatherND(c *Call) (*twin, error) {
	return newTwin("GatherND", plain(c.Inputs[:min(2, len(c.Inputs))]), withInt("batch_dims", c.int("batch_dims"))), nil
}

// matMul multiplies two matrices, either of which may be turned.
func matMul(c *Call) (*twin, error) {
	turned := func(name string) *onnxpb.AttributeProto {
		v := int64(0)
		if c.flag("transpose_" + name) {
			v = 1
		}
		return withInt(map[string]string{"a": "transA", "b": "transB"}[name], v)
	}
	return newTwin("Gemm", plain(c.Inputs[:min(2, len(c.Inputs))]), turned("a"), turned("b")), nil
}

// batchMatMul multiplies matrices in the last two dimensions.
func batchMatMul(c *Call) (*twin, error) {
	inputs := plain(c.Inputs[:min(2, len(c.Inputs))])
	for i, name := range []string{"adj_x", "adj_y"}[:len(inputs)] {
		if dims := slices.Clone(inputs[i].Shape); c.flag(name) && len(dims) >= 2 {
			n := len(dims)
			dims[n-1], dims[n-2] = dims[n-2], dims[n-1]
			inputs[i].Shape = dims
		}
	}
	return newTwin("MatMul", inputs), nil
}

func addAll(c *Call) (*twin, error) {
	if len(c.Inputs) == 0 {
		return nil, fmt.Errorf("it has no input")
	}
	return newTwin("Sum", plain(c.Inputs)), nil
}

func cast(c *Call) (*twin, error) {
	to := int64(Element(c.Attributes["DstT"].GetType()))
	return newTwin("Cast", []shape.Value{c.in(0).Value}, &onnxpb.AttributeProto{Name: proto.String("to"), I: &to}), nil
}

// floorDiv rounds down, which is how a length is divided and rounded up:
// -(-n // k).
func floorDiv(c *Call) ([]Value, error) {
	_, out, err := twinOutputs(c, sameOf("Div", 2))
	a, b := c.in(0).Ints, c.in(1).Ints
	if err != nil || len(out) == 0 || len(a) == 0 || len(b) == 0 {
		return out, err
	}
	for i, q := range out[0].Ints {
		x, y := a[i%len(a)], b[i%len(b)]
		if q != shape.Unknown && x%y != 0 && (x < 0) != (y < 0) {
			q = x/y - 1
		}
		out[0].Ints[i] = q
	}
	return out, nil
}
