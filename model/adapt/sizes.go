package adapt

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Sizes to try for a free dimension. The first are those of [model.Model.SampleInputs]:
// 128 words, and an image of 224 × 224 pixels. A model whose strides need a multiple runs with
// a power of two or with 640, one that was exported with a window with its own.
var (
	lengths = []int64{128, 16, 64, 256, 32, 512, 1, 2, 8, 100, 320, 640, 1024}
	sides   = []int64{224, 256, 320, 640, 64, 32, 128, 160, 384, 512, 48, 28, 16, 1024}
)

// Shapes proposes whole shapes of one row for the inputs, the likeliest first. given are
// sizes that a person has named; they are then the only proposal for these inputs. axes are
// the positions of the batch, nil if there is none. Dimensions with one name have one size,
// and "past + now" has the sum. Sizes that the graph implies are kept.
func (n *Natural) Shapes(given tensor.Shapes, axes []int) iter.Seq[tensor.Shapes] {
	return func(yield func(tensor.Shapes) bool) {
		seen := make(map[string]bool)
		implied := n.implied()
		for i := range max(len(lengths), len(sides)) {
			for _, channels := range []int64{3, 1} {
				s := n.shapes(given, axes, implied, lengths[min(i, len(lengths)-1)], sides[min(i, len(sides)-1)], channels)
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

// Example are shapes of one row as a person may write them.
func (n *Natural) Example() tensor.Shapes {
	for s := range n.Shapes(nil, nil) {
		return s
	}
	return nil
}

// shapes are the inputs' shapes with one length, side and number of channels.
func (n *Natural) shapes(given tensor.Shapes, axes []int, implied map[string]int64, length, side, channels int64) tensor.Shapes {
	sizes := n.given(given)
	for key, size := range implied {
		if sizes[key] == 0 {
			sizes[key] = size
		}
	}
	s := make(tensor.Shapes, len(n.Inputs))
	for i, in := range n.Inputs {
		if own, ok := given[in.Name]; ok && len(own) == len(in.Shape) {
			s[in.Name] = slices.Clone(own)
			if axes != nil {
				s[in.Name][axes[i]] = 1
			}
			continue
		}
		shape := make([]int64, len(in.Shape))
		for d, declared := range in.Shape {
			key := n.key(i, d)
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
			case len(in.Shape) == 4 && d == n.channel(in):
				shape[d] = channels
			case len(in.Shape) == 4:
				shape[d] = side
			default:
				shape[d] = length
			}
			if sizes[key] == 0 && n.names[i][d] != "" && declared < 0 {
				sizes[key] = shape[d]
			}
		}
		s[in.Name] = shape
	}
	n.sums(s, given, axes, sizes)
	return s
}

// channel is the position of the channels in an image's shape: the last if that is fixed to
// a number that channels have.
func (n *Natural) channel(in tensor.Info) int {
	if last := in.Shape[3]; last == 1 || last == 3 || last == 4 {
		return 3
	}
	return 1
}

// key names a dimension: dimensions of one name have one size.
func (n *Natural) key(input, dimension int) string {
	if name := n.names[input][dimension]; name != "" {
		return name
	}
	return fmt.Sprintf("#%d.%d", input, dimension)
}

// given are the sizes by key that given shapes say.
func (n *Natural) given(given tensor.Shapes) map[string]int64 {
	sizes := make(map[string]int64)
	for i, in := range n.Inputs {
		shape := given[in.Name]
		if len(shape) != len(in.Shape) {
			continue
		}
		for d := range shape {
			if in.Shape[d] < 0 {
				sizes[n.key(i, d)] = shape[d]
			}
		}
	}
	return sizes
}

// sums sets the dimensions whose name is a sum of others, such as "past_length + length".
func (n *Natural) sums(s tensor.Shapes, given tensor.Shapes, axes []int, sizes map[string]int64) {
	for i, in := range n.Inputs {
		if _, ok := given[in.Name]; ok {
			continue
		}
		for d := range in.Shape {
			if in.Shape[d] < 0 && (axes == nil || axes[i] != d) {
				if size, ok := sum(n.names[i][d], sizes); ok {
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

// implied are the sizes of free dimensions that the first operators on an input require,
// by key: the rows of a matrix, the channels of a convolution.
func (n *Natural) implied() map[string]int64 {
	g := n.Model.Proto().GetGraph()
	dims := make(map[string][]int64)
	for _, t := range g.GetInitializer() {
		dims[t.GetName()] = t.GetDims()
	}
	origin := make(map[string]int)
	for i, in := range n.Inputs {
		origin[in.Name] = i + 1
	}
	sizes := make(map[string]int64)
	for _, node := range g.GetNode() {
		for _, name := range node.GetInput() {
			i := origin[name] - 1
			if i < 0 {
				continue
			}
			if t := node.GetOpType(); t == "Cast" || t == "Identity" || t == "Dropout" {
				origin[node.GetOutput()[0]] = i + 1
			}
			d, size := needs(node, name, len(n.Inputs[i].Shape), dims)
			if size > 0 && d >= 0 && d < len(n.Inputs[i].Shape) && n.Inputs[i].Shape[d] < 0 {
				if key := n.key(i, d); sizes[key] == 0 {
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
		return rank - 1, weights[attribute(node, "transB")]
	case t == "Conv" && len(weights) >= 3:
		return 1, weights[1] * max(1, attribute(node, "group"))
	case (t == "LSTM" || t == "GRU" || t == "RNN") && len(weights) == 3:
		return rank - 1, weights[2]
	case t == "BatchNormalization" && len(weights) == 1:
		return 1, weights[0]
	}
	return 0, 0
}
