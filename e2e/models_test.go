package e2e

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// zooModel makes a model of the zoo.
func zooModel(t *testing.T, name string) *model.Model {
	t.Helper()
	m, err := zoo.Make(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// bundle writes a bundle for an image and returns the model's file. On a cluster it also
// pushes the image.
func (p *place) bundle(t *testing.T, image string, m *model.Model) string {
	t.Helper()
	b, err := bundle.Write(p.bundles, image, bundle.Manifest{}, m)
	if err != nil {
		t.Fatal(err)
	}
	if onCluster != nil {
		if err := onCluster.push(b.Dir, image); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(b.Dir, b.Manifest.Model)
}

// identity writes the bundle identity:latest, whose output is its input.
func (p *place) identity(t *testing.T) {
	t.Helper()
	p.bundle(t, "identity:latest", zooModel(t, "identity"))
}

// edited returns the zoo's identity after a change to its graph.
func edited(t *testing.T, change func(*onnxpb.GraphProto)) *model.Model {
	t.Helper()
	p := proto.Clone(zooModel(t, "identity").Proto()).(*onnxpb.ModelProto)
	change(p.Graph)
	m, err := model.FromProto(p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// fix sets a dimension of one of identity's values to n.
func fix(v *onnxpb.ValueInfoProto, dimension, n int) {
	v.Type.GetTensorType().Shape.Dim[dimension].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(n)}
}

// doubling writes the bundle double:latest: identity's inputs and outputs, with
// twice the value.
func (p *place) doubling(t *testing.T) {
	t.Helper()
	p.bundle(t, "double:latest", edited(t, func(g *onnxpb.GraphProto) {
		in := g.Node[0].Input[0]
		g.Node[0].OpType, g.Node[0].Input = proto.String("Add"), []string{in, in}
	}))
}

// doubled returns the answer of the model double to request i.
func doubled(i int) []byte {
	var b []byte
	for _, x := range floats(payload(i)) {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(2*x))
	}
	return b
}

// slow writes the bundle slow:latest, an identity that takes some milliseconds. It adds the
// result of a chain of products with zero matrices to its input.
func (p *place) slow(t *testing.T) {
	t.Helper()
	const size, products = 1024, 24
	p.bundle(t, "slow:latest", edited(t, func(g *onnxpb.GraphProto) {
		in, out := g.Node[0].Input[0], g.Node[0].Output[0]
		fix(g.Input[0], 1, width)
		fix(g.Output[0], 1, width)
		g.Initializer = append(g.Initializer, zeros("widen", width, size), zeros("turn", size, size), zeros("narrow", size, width))
		g.Node = nil
		at := in
		product := func(matrix string) {
			next := fmt.Sprintf("product%d", len(g.Node))
			g.Node = append(g.Node, node("MatMul", next, at, matrix))
			at = next
		}
		product("widen")
		for range products {
			product("turn")
		}
		product("narrow")
		g.Node = append(g.Node, node("Add", out, in, at))
	}))
}

func node(operator, output string, inputs ...string) *onnxpb.NodeProto {
	return &onnxpb.NodeProto{OpType: proto.String(operator), Name: proto.String(output), Input: inputs, Output: []string{output}}
}

func zeros(name string, rows, columns int64) *onnxpb.TensorProto {
	return &onnxpb.TensorProto{Name: proto.String(name), Dims: []int64{rows, columns},
		DataType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)), RawData: make([]byte, 4*rows*columns)}
}
