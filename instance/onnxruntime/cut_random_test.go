package onnxruntime

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Random networks of convolutions, poolings and sums answer in parts of any size as they do
// whole: with strides, dilations, groups, uneven pads, pads by name, ceil mode, and counted
// padding.
func TestRandomNetworksInParts(t *testing.T) {
	networks, tried, refused := 60, 0, 0
	if testing.Short() {
		networks = 10
	}
	for seed := range networks {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		m := randomNetwork(t, rng)
		p := newPartition(t, m)
		inputs, err := m.SampleInputs(2, uint64(seed))
		if err != nil {
			t.Fatal(err)
		}
		g, err := p.model.Group(0, len(p.model.Layers()))
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]tensor.Tensor{inputs[0].Name: inputs[0]}
		parts, err := g.Cut(g.Whole())
		if err != nil {
			t.Fatal(err)
		}
		// For some poolings with ceil_mode, ONNX Runtime infers another size than it computes.
		want, err := p.attempt(t, p.write(t, parts[0]), have)
		if err != nil {
			refused++
			continue
		}
		for range 4 {
			c := randomCut(rng, g.Shape(97))
			got := p.parts(t, g, c, have)
			if got == nil {
				continue
			}
			tried++
			other := p.otherKernel(t, g, c)
			for name, x := range got {
				p.compareResult(t, fmt.Sprintf("network %d, %v", seed, c.Regions), other, x, want[name])
			}
		}
		if t.Failed() {
			for _, n := range m.Proto().GetGraph().GetNode() {
				t.Log(n)
			}
			t.FailNow()
		}
	}
	t.Logf("%d cuts; ONNX Runtime cannot run %d of %d networks", tried, refused, networks)
	if tried < networks || refused > networks/4 {
		t.Errorf("only %d cuts of %d networks, %d of which cannot be run", tried, networks, refused)
	}
}

// randomCut divides a shape at up to two random places of up to two dimensions.
func randomCut(rng *rand.Rand, shape []int64) cut.Cut {
	whole := make(cut.Region, len(shape))
	for d, n := range shape {
		whole[d] = cut.Span{To: n}
	}
	regions := []cut.Region{whole}
	for range 1 + rng.IntN(2) {
		d := 1 + rng.IntN(len(shape)-1)
		at := 1 + rng.Int64N(max(1, shape[d]-1))
		var next []cut.Region
		for _, r := range regions {
			if at <= r[d].From || at >= r[d].To {
				next = append(next, r)
				continue
			}
			low, high := append(cut.Region{}, r...), append(cut.Region{}, r...)
			low[d].To, high[d].From = at, at
			next = append(next, low, high)
		}
		regions = next
	}
	return cut.Cut{Name: "random", Regions: regions}
}

// network builds a random network. The sums of its convolutions have at most 128 products,
// which are one block whatever the size (see otherKernel).
type network struct {
	rng   *rand.Rand
	graph *onnxpb.GraphProto
}

func randomNetwork(t *testing.T, rng *rand.Rand) *model.Model {
	t.Helper()
	for {
		n := &network{rng: rng, graph: &onnxpb.GraphProto{Name: proto.String("random")}}
		channels := int64(2 * (1 + rng.IntN(3)))
		high, wide := 9+rng.Int64N(9), 9+rng.Int64N(9)
		n.graph.Input = []*onnxpb.ValueInfoProto{valueOf("x", []int64{-1, channels, high, wide})}
		x := "x"
		for range 1 + rng.IntN(4) {
			x, channels = n.layer(x, channels)
		}
		n.graph.Output = []*onnxpb.ValueInfoProto{valueOf(x, []int64{-1, -1, -1, -1})}
		m, err := model.FromProto(&onnxpb.ModelProto{
			IrVersion: proto.Int64(8), OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: proto.Int64(17)}}, Graph: n.graph,
		})
		if err != nil {
			t.Fatal(err)
		}
		if g, err := m.Graph(1); err == nil && g.Outputs[0].Shape[2] > 1 && g.Outputs[0].Shape[3] > 1 {
			return m
		}
	}
}

func valueOf(name string, shape []int64) *onnxpb.ValueInfoProto {
	s := &onnxpb.TensorShapeProto{}
	for d, size := range shape {
		dim := &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: size}}
		if size < 0 {
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: fmt.Sprintf("d%d", d)}
		}
		s.Dim = append(s.Dim, dim)
	}
	return &onnxpb.ValueInfoProto{Name: proto.String(name), Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{ElemType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)), Shape: s},
	}}}
}

// layer adds a random layer and returns its output and channels.
func (n *network) layer(x string, channels int64) (string, int64) {
	switch n.rng.IntN(6) {
	case 0, 1:
		groups := []int64{1, 2, channels}[n.rng.IntN(3)]
		out := groups * (1 + n.rng.Int64N(3))
		if n.rng.IntN(2) == 0 {
			out = channels
		}
		return n.conv(x, channels, out, groups), out
	case 2:
		return n.add("MaxPool", []string{x}, append(n.window(3, true), whole("ceil_mode", n.rng.Int64N(2)))...), channels
	case 3:
		window := append(n.window(3, false), whole("count_include_pad", n.rng.Int64N(2)))
		return n.add("AveragePool", []string{x}, append(window, whole("ceil_mode", n.rng.Int64N(2)))...), channels
	case 4: // A block with a branch.
		y := n.add("Relu", []string{n.same(x, channels)})
		return n.add("Add", []string{n.same(y, channels), x}), channels
	}
	y := n.add("Sigmoid", []string{x})
	return n.add("Concat", []string{n.add("Mul", []string{x, y}), x}, whole("axis", 1)), 2 * channels
}

// same is a convolution that keeps the size.
func (n *network) same(x string, channels int64) string {
	w := n.weight(channels, channels, 3, 1)
	pads := &onnxpb.AttributeProto{Name: proto.String("pads"), Type: onnxpb.AttributeProto_INTS.Enum(), Ints: []int64{1, 0, 1, 0}}
	return n.add("Conv", []string{x, w}, pads)
}

func (n *network) conv(x string, in, out, groups int64) string {
	window := n.window(3, true)
	k := window[0].Ints
	for in/groups*k[0]*k[1] > 128 {
		k[0], k[1] = 1, 1
		for _, a := range window {
			if a.GetName() == "pads" {
				a.Ints = []int64{0, 0, 0, 0}
			}
		}
	}
	inputs := []string{x, n.weight(out, in/groups, k[0], k[1])}
	if n.rng.IntN(2) == 0 {
		inputs = append(inputs, n.weight(out))
	}
	return n.add("Conv", inputs, append(window, whole("group", groups))...)
}

// window is a random window: its kernel first, strides, dilations, and pads below the
// kernel's size, by number or by name.
func (n *network) window(largest int64, dilates bool) []*onnxpb.AttributeProto {
	ints := func(name string, values ...int64) *onnxpb.AttributeProto {
		return &onnxpb.AttributeProto{Name: proto.String(name), Type: onnxpb.AttributeProto_INTS.Enum(), Ints: values}
	}
	k := []int64{1 + n.rng.Int64N(largest), 1 + n.rng.Int64N(largest)}
	strides := []int64{1 + n.rng.Int64N(2), 1 + n.rng.Int64N(2)}
	out := []*onnxpb.AttributeProto{ints("kernel_shape", k...), ints("strides", strides...)}
	names := []string{"SAME_UPPER", "SAME_LOWER"}
	// Otherwise ONNX Runtime finds negative pads, and refuses them.
	if strides[0] <= k[0] && strides[1] <= k[1] && n.rng.IntN(3) == 0 {
		return append(out, &onnxpb.AttributeProto{Name: proto.String("auto_pad"), Type: onnxpb.AttributeProto_STRING.Enum(), S: []byte(names[n.rng.IntN(2)])})
	}
	if dilates {
		out = append(out, ints("dilations", 1+n.rng.Int64N(2), 1+n.rng.Int64N(2)))
	}
	return append(out, ints("pads", n.rng.Int64N(k[0]), n.rng.Int64N(k[1]), n.rng.Int64N(k[0]), n.rng.Int64N(k[1])))
}

func whole(name string, value int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: proto.String(name), Type: onnxpb.AttributeProto_INT.Enum(), I: &value}
}

func (n *network) add(kind string, inputs []string, attributes ...*onnxpb.AttributeProto) string {
	name := fmt.Sprintf("%s_%d", kind, len(n.graph.Node))
	n.graph.Node = append(n.graph.Node, &onnxpb.NodeProto{Name: &name, OpType: &kind, Input: inputs, Output: []string{name}, Attribute: attributes})
	return name
}

func (n *network) weight(dims ...int64) string {
	name, size := fmt.Sprintf("w%d", len(n.graph.Initializer)), int64(1)
	for _, d := range dims {
		size *= d
	}
	t := &onnxpb.TensorProto{Name: &name, Dims: dims, DataType: proto.Int32(int32(onnxpb.TensorProto_FLOAT))}
	for range size {
		t.RawData = binary.LittleEndian.AppendUint32(t.RawData, math.Float32bits(n.rng.Float32()-0.5))
	}
	n.graph.Initializer = append(n.graph.Initializer, t)
	return name
}
