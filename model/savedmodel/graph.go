package savedmodel

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	pb "github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// graph is a SavedModel's graph by the names of its nodes and functions.
type graph struct {
	nodes     map[string]*pb.NodeDef
	functions map[string]*pb.FunctionDef
}

func newGraph(def *pb.GraphDef) *graph {
	g := &graph{nodes: map[string]*pb.NodeDef{}, functions: map[string]*pb.FunctionDef{}}
	for _, n := range def.GetNode() {
		g.nodes[n.GetName()] = n
	}
	for _, f := range def.GetLibrary().GetFunction() {
		g.functions[f.GetSignature().GetName()] = f
	}
	return g
}

// node finds the node of a tensor, as "name:0", or of an input, as "name", "name:1"
// or "^name".
func (g *graph) node(tensor string) (*pb.NodeDef, error) {
	name, output, numbered := strings.Cut(strings.TrimPrefix(tensor, "^"), ":")
	if n, err := strconv.Atoi(output); numbered && (err != nil || n < 0) {
		return nil, fmt.Errorf("%q does not name an output", tensor)
	}
	n := g.nodes[name]
	if n == nil {
		return nil, fmt.Errorf("the graph has no node %q; save the model again", tensor)
	}
	return n, nil
}

// reach finds the nodes from which tensors are computed.
func (g *graph) reach(tensors []string) (map[string]*pb.NodeDef, error) {
	reached := map[string]*pb.NodeDef{}
	for open := slices.Clone(tensors); len(open) > 0; {
		n, err := g.node(open[len(open)-1])
		if err != nil {
			return nil, err
		}
		open = open[:len(open)-1]
		if reached[n.GetName()] == nil {
			reached[n.GetName()] = n
			open = append(open, n.GetInput()...)
		}
	}
	return reached, nil
}

// count counts nodes by kind, including the nodes of the functions that they call.
func (g *graph) count(reached map[string]*pb.NodeDef) (map[string]int, error) {
	kinds, called := map[string]int{}, map[string]bool{}
	var visit func(n *pb.NodeDef) error
	call := func(n *pb.NodeDef, name string) error {
		f := g.functions[name]
		if f == nil {
			return fmt.Errorf("node %q calls the function %q, which the graph does not have", n.GetName(), name)
		}
		if called[name] {
			return nil
		}
		called[name] = true
		for _, inner := range f.GetNodeDef() {
			if err := visit(inner); err != nil {
				return err
			}
		}
		return nil
	}
	visit = func(n *pb.NodeDef) error {
		kinds[n.GetOp()]++
		for _, key := range slices.Sorted(maps.Keys(n.GetAttr())) {
			a := n.GetAttr()[key]
			for _, f := range append(a.GetList().GetFunc(), a.GetFunc()) {
				if f.GetName() == "" {
					continue
				}
				if err := call(n, f.GetName()); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(reached)) {
		if err := visit(reached[name]); err != nil {
			return nil, err
		}
	}
	return kinds, nil
}

// holders are the operators that hold a variable.
var holders = map[string]bool{"VarHandleOp": true, "VariableV2": true, "Variable": true, "VariableSharedV2": true}

// variables are the variables among nodes, sorted by name.
func variables(nodes map[string]*pb.NodeDef) []Variable {
	var all []Variable
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[name]
		if !holders[n.GetOp()] {
			continue
		}
		kind := elements[element(n.GetAttr()["dtype"].GetType())]
		v := Variable{Name: name, Type: kind.name, Shape: shape(n.GetAttr()["shape"].GetShape())}
		v.Bytes = volume(v.Shape) * kind.size
		all = append(all, v)
	}
	return all
}

// volume is the number of elements, 0 if it is unknown or too large to store.
func volume(dims []int64) int64 {
	if dims == nil {
		return 0
	}
	n := int64(1)
	for _, d := range dims {
		if d <= 0 || n > math.MaxInt64/16/d {
			return 0
		}
		n *= d
	}
	return n
}

// elements maps element types to their Open Inference name, "" if there is none, and
// their size in bytes.
var elements = map[pb.DataType]struct {
	name tensor.Type
	size int64
}{
	pb.DataType_DT_FLOAT: {tensor.FP32, 4}, pb.DataType_DT_DOUBLE: {tensor.FP64, 8}, pb.DataType_DT_HALF: {tensor.FP16, 2}, pb.DataType_DT_BFLOAT16: {"", 2},
	pb.DataType_DT_INT8: {tensor.Int8, 1}, pb.DataType_DT_INT16: {tensor.Int16, 2}, pb.DataType_DT_INT32: {tensor.Int32, 4}, pb.DataType_DT_INT64: {tensor.Int64, 8},
	pb.DataType_DT_UINT8: {tensor.Uint8, 1}, pb.DataType_DT_UINT16: {tensor.Uint16, 2}, pb.DataType_DT_UINT32: {tensor.Uint32, 4}, pb.DataType_DT_UINT64: {tensor.Uint64, 8},
	pb.DataType_DT_QINT8: {tensor.Int8, 1}, pb.DataType_DT_QUINT8: {tensor.Uint8, 1}, pb.DataType_DT_QINT16: {tensor.Int16, 2}, pb.DataType_DT_QUINT16: {tensor.Uint16, 2},
	pb.DataType_DT_QINT32: {tensor.Int32, 4}, pb.DataType_DT_BOOL: {tensor.Bool, 1}, pb.DataType_DT_COMPLEX64: {"", 8}, pb.DataType_DT_COMPLEX128: {"", 16},
}

// element is the type that a reference to a variable refers to. The type of a
// reference is 100 above it.
func element(t pb.DataType) pb.DataType {
	if t > 100 {
		t -= 100
	}
	return t
}

// maxRank is the maximum number of dimensions of a tensor.
const maxRank = 254

// shape is a shape in the file, nil if its rank is unknown.
func shape(s *pb.TensorShapeProto) []int64 {
	if s == nil || s.GetUnknownRank() || len(s.GetDim()) > maxRank {
		return nil
	}
	out := []int64{}
	for _, d := range s.GetDim() {
		out = append(out, max(d.GetSize(), -1))
	}
	return out
}
