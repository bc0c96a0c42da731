package model

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Sizes to try for a free dimension. The first are those of [Model.Sized] and [Model.SampleInputs]:
// 128 words, and an image of 224 × 224 pixels. A model whose strides need a multiple runs with
// a power of two or with 640, one that was exported with a window with its own.
var (
	lengths = []int64{128, 16, 64, 256, 32, 512, 1, 2, 8, 100, 320, 640, 1024}
	sides   = []int64{224, 256, 320, 640, 64, 32, 128, 160, 384, 512, 48, 28, 16, 1024}
)

// guesser guesses the sizes of a model's free dimensions.
type guesser struct {
	inputs []tensor.Info
	names  [][]string // of the inputs' dimensions, "" for those without a name
	// implied are sizes that the graph implies, given those that a person has named, by key.
	implied, given map[string]int64
}

// guess returns a guesser. given are sizes that a person has named.
func (m *Model) guess(given tensor.Shapes) *guesser {
	g := &guesser{inputs: m.Inputs()}
	for _, in := range m.inputs() {
		dims := in.GetType().GetTensorType().GetShape().GetDim()
		names := make([]string, len(dims))
		for i, d := range dims {
			names[i] = d.GetDimParam()
		}
		g.names = append(g.names, names)
	}
	g.implied, g.given = g.impliedBy(m.proto.GetGraph()), g.sizesOf(given)
	return g
}

// GuessShapes proposes whole shapes of one row for the inputs, the likeliest first. given are
// sizes that a person has named; they are then the only proposal for these inputs. axes are
// the positions of the batch, nil if there is none. Dimensions with one name have one size,
// and "past + now" has the sum. Sizes that the graph implies are kept.
func (m *Model) GuessShapes(given tensor.Shapes, axes []int) iter.Seq[tensor.Shapes] {
	return func(yield func(tensor.Shapes) bool) {
		seen := make(map[string]bool)
		g := m.guess(given)
		for i := range max(len(lengths), len(sides)) {
			for _, channels := range []int64{3, 1} {
				s := g.shapes(given, axes, lengths[min(i, len(lengths)-1)], sides[min(i, len(sides)-1)], channels)
				if key := s.String(); !seen[key] {
					seen[key] = true
					if !yield(s) {
						return
					}
				}
			}
		}
	}
}

// likeliest are the likeliest shapes of one row, with the batch in front.
func (g *guesser) likeliest(given tensor.Shapes) tensor.Shapes {
	return g.shapes(given, make([]int, len(g.inputs)), lengths[0], sides[0], imageChannels)
}

// shapes are the inputs' shapes with one length, side and number of channels.
func (g *guesser) shapes(given tensor.Shapes, axes []int, length, side, channels int64) tensor.Shapes {
	sizes := maps.Clone(g.given)
	for key, size := range g.implied {
		if sizes[key] == 0 {
			sizes[key] = size
		}
	}
	s := make(tensor.Shapes, len(g.inputs))
	for i, in := range g.inputs {
		if own, ok := given[in.Name]; ok && len(own) == len(in.Shape) {
			s[in.Name] = slices.Clone(own)
			if axes != nil && len(own) > 0 {
				s[in.Name][axes[i]] = 1
			}
			continue
		}
		shape := make([]int64, len(in.Shape))
		for d, declared := range in.Shape {
			key := g.key(i, d)
			switch {
			case axes != nil && axes[i] == d:
				shape[d] = 1
			case declared >= 0:
				shape[d] = declared
			case sizes[key] > 0:
				shape[d] = sizes[key]
			case d == 0 || in.Shape[0] > 1 && d == slices.Index(in.Shape, -1):
				// As a rule a batch, though not one that rows can share: [?, 80], or a state [2, ?, 128].
				shape[d] = 1
			case len(in.Shape) == 4 && d == g.channel(in):
				shape[d] = channels
			case len(in.Shape) == 4:
				shape[d] = side
			default:
				shape[d] = length
			}
			if sizes[key] == 0 && g.names[i][d] != "" && declared < 0 {
				sizes[key] = shape[d]
			}
		}
		s[in.Name] = shape
	}
	g.sums(s, given, axes, sizes)
	return s
}

// channel is the position of the channels in an image's shape: the last if that is fixed to
// a number that channels have.
func (g *guesser) channel(in tensor.Info) int {
	if last := in.Shape[3]; last == 1 || last == 3 || last == 4 {
		return 3
	}
	return 1
}

// key names a dimension: dimensions of one name have one size.
func (g *guesser) key(input, dimension int) string {
	if name := g.names[input][dimension]; name != "" {
		return name
	}
	return fmt.Sprintf("#%d.%d", input, dimension)
}

// sizesOf are the sizes by key that given shapes say.
func (g *guesser) sizesOf(given tensor.Shapes) map[string]int64 {
	sizes := make(map[string]int64)
	for i, in := range g.inputs {
		shape := given[in.Name]
		if len(shape) != len(in.Shape) {
			continue
		}
		for d := range shape {
			if in.Shape[d] < 0 {
				sizes[g.key(i, d)] = shape[d]
			}
		}
	}
	return sizes
}

// sums sets the dimensions whose name is a sum of others, such as "past_length + length".
func (g *guesser) sums(s tensor.Shapes, given tensor.Shapes, axes []int, sizes map[string]int64) {
	for i, in := range g.inputs {
		if _, ok := given[in.Name]; ok {
			continue
		}
		for d := range in.Shape {
			if in.Shape[d] < 0 && (axes == nil || axes[i] != d) {
				if size, ok := sum(g.names[i][d], sizes); ok {
					s[in.Name][d] = size
				}
			}
		}
	}
}

// sum is the value of a sum of names and numbers; false if it is none, or a name is unknown.
func sum(name string, sizes map[string]int64) (int64, bool) {
	terms := strings.Split(name, "+")
	if len(terms) < 2 {
		return 0, false
	}
	total := int64(0)
	for _, t := range terms {
		t = strings.TrimSpace(t)
		if n, err := strconv.ParseInt(t, 10, 32); err == nil {
			total += n
		} else if size := sizes[t]; size > 0 {
			total += size
		} else {
			return 0, false
		}
	}
	return total, total > 0
}

// impliedBy are the sizes of free dimensions that the first operators on an input require,
// by key: the rows of a matrix, the channels of a convolution.
func (g *guesser) impliedBy(graph *onnxpb.GraphProto) map[string]int64 {
	dims := make(map[string][]int64)
	for _, t := range graph.GetInitializer() {
		dims[t.GetName()] = t.GetDims()
	}
	origin := make(map[string]int)
	for i, in := range g.inputs {
		origin[in.Name] = i + 1
	}
	sizes := make(map[string]int64)
	for _, node := range graph.GetNode() {
		for _, name := range node.GetInput() {
			i := origin[name] - 1
			if i < 0 {
				continue
			}
			if t := node.GetOpType(); t == "Cast" || t == "Identity" || t == "Dropout" {
				origin[node.GetOutput()[0]] = i + 1
			}
			d, size := needs(node, name, len(g.inputs[i].Shape), dims)
			if size > 0 && d >= 0 && d < len(g.inputs[i].Shape) && g.inputs[i].Shape[d] < 0 {
				if key := g.key(i, d); sizes[key] == 0 {
					sizes[key] = size
				}
			}
		}
	}
	return sizes
}

// needs returns a dimension of a node's input and the size that the node's weights require of
// it, 0 for none.
func needs(node *onnxpb.NodeProto, input string, rank int, dims map[string][]int64) (dimension int, size int64) {
	in := node.GetInput()
	if len(in) < 2 || in[0] != input {
		return 0, 0
	}
	weights := dims[in[1]]
	switch t := node.GetOpType(); {
	case t == "MatMul" && len(weights) >= 2:
		return rank - 1, weights[len(weights)-2]
	case t == "Gemm" && len(weights) == 2:
		return rank - 1, weights[Attribute(node, "transB")]
	case t == "Conv" && len(weights) >= 3:
		return 1, weights[1] * max(1, Attribute(node, "group"))
	case (t == "LSTM" || t == "GRU" || t == "RNN") && len(weights) == 3:
		return rank - 1, weights[2]
	case t == "BatchNormalization" && len(weights) == 1:
		return 1, weights[0]
	}
	return 0, 0
}

// Attribute is the value of a node's integer attribute, 0 if it is not there.
func Attribute(n *onnxpb.NodeProto, name string) int64 {
	for _, a := range n.GetAttribute() {
		if a.GetName() == name {
			return a.GetI()
		}
	}
	return 0
}
