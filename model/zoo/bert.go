package zoo

import (
	"math"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// encoder is the size of a BERT. bertBase is Devlin et al.'s base; bertSmall is
// Turc et al.'s BERT of 4 layers ("Well-Read Students Learn Better", Table 1). miniLM is Wang et
// al.'s of 6 layers ("MiniLM", Table 1), as exporters write it, for texts of any length.
type encoder struct {
	layers            int
	heads, width      int64
	vocabulary, words int64 // words is the number of words in a row, -1 for any
}

var (
	bertBase  = encoder{layers: 12, heads: 12, width: 768, vocabulary: 21128, words: 128}
	miniLM    = encoder{layers: 6, heads: 12, width: 384, vocabulary: 30522, words: -1}
	bertSmall = encoder{layers: 4, heads: 8, width: 512, vocabulary: 30522, words: 128}
)

// build adds the encoder and the pooler, as exporters write them.
func (e encoder) build(n *network) {
	const positions = 512
	ids := n.input("input_ids", onnxpb.TensorProto_INT64, e.words)
	mask := n.input("attention_mask", onnxpb.TensorProto_INT64, e.words)
	table := n.around("positions", 0, 1, positions, e.width)
	end := ""
	if e.words >= 0 {
		end = n.integers(e.words)
	} else {
		end = n.op("Slice", []string{n.op("Shape", []string{ids}), n.integers(1), n.integers(2), n.integers(0)})
	}
	x := n.op("Add", []string{n.embedding(ids, e.vocabulary, e.width), n.op("Slice", []string{table, n.integers(0), end, n.integers(0)})})
	x = n.layerNorm(x, e.width)
	hidden := n.attentionBias(mask)
	for range e.layers {
		x = n.layerNorm(n.op("Add", []string{x, e.attention(n, x, hidden)}), e.width)
		y := n.linear(n.gelu(n.linear(x, e.width, 4*e.width)), 4*e.width, e.width)
		x = n.layerNorm(n.op("Add", []string{x, y}), e.width)
	}
	first := n.op("Squeeze", []string{
		n.op("Slice", []string{x, n.integers(0), n.integers(1), n.integers(1)}), n.integers(1)})
	n.output("pooled", n.op("Tanh", []string{n.dense(first, e.width, e.width, 1)}), e.width)
}

// attentionBias turns a mask into a bias for the attention scores: 0 for a word
// and -10000 for padding.
func (n *network) attentionBias(mask string) string {
	m := n.op("Cast", []string{n.op("Unsqueeze", []string{mask, n.integers(1, 2)})}, attrInt("to", int64(onnxpb.TensorProto_FLOAT)))
	return n.op("Mul", []string{n.op("Sub", []string{n.scalar(1), m}), n.scalar(-10000)})
}

// attention is self-attention with all heads and its output projection.
func (e encoder) attention(n *network, x, hidden string) string {
	size := e.width / e.heads
	heads := func(perm ...int64) string {
		y := n.op("Reshape", []string{n.linear(x, e.width, e.width), n.integers(0, 0, e.heads, size)})
		return n.op("Transpose", []string{y}, attrInts("perm", perm...))
	}
	query, key, value := heads(0, 2, 1, 3), heads(0, 2, 3, 1), heads(0, 2, 1, 3)
	scores := n.op("Div", []string{n.op("MatMul", []string{query, key}), n.scalar(float32(math.Sqrt(float64(size))))})
	weights := n.softmax(n.op("Add", []string{scores, hidden}))
	y := n.op("Transpose", []string{n.op("MatMul", []string{weights, value})}, attrInts("perm", 0, 2, 1, 3))
	return n.linear(n.op("Reshape", []string{y, n.integers(0, 0, e.width)}), e.width, e.width)
}

// linear is a dense layer on the last dimension, as MatMul and Add.
func (n *network) linear(x string, in, out int64) string {
	name := n.next("MatMul")
	y := n.op("MatMul", []string{x, n.weight(name+".weight", 1, in, in, out)})
	return n.op("Add", []string{y, n.around(name+".bias", 0, 0.05, out)})
}

func (n *network) layerNorm(x string, width int64) string {
	name := n.next("LayerNormalization")
	return n.op("LayerNormalization", []string{x,
		n.around(name+".scale", 1, 0.1, width), n.around(name+".bias", 0, 0.1, width),
	}, attrInt("axis", -1), attrFloat("epsilon", 1e-12))
}

// gelu is x/2 · (1 + erf(x/√2)). Engines fuse these operators into one.
func (n *network) gelu(x string) string {
	y := n.op("Erf", []string{n.op("Div", []string{x, n.scalar(math.Sqrt2)})})
	y = n.op("Mul", []string{x, n.op("Add", []string{y, n.scalar(1)})})
	return n.op("Mul", []string{y, n.scalar(0.5)})
}
