package zoo

import "github.com/faas-infer/faas-infer/model/onnxpb"

func identity(n *network) {
	n.output("output", n.input("input", onnxpb.TensorProto_FLOAT, -1), -1)
}

// dssm is Huang et al.'s DSSM: towers of dense layers with tanh, one for the
// question and one for the document, and the cosine of their outputs.
func dssm(n *network) {
	const terms = 2365
	tower := func(x string) string {
		widths := []int64{terms, 1024, 768, 128}
		for i := 1; i < len(widths); i++ {
			x = n.op("Tanh", []string{n.dense(x, widths[i-1], widths[i], 1)})
		}
		return x
	}
	query := tower(n.input("query", onnxpb.TensorProto_FLOAT, terms))
	document := tower(n.input("document", onnxpb.TensorProto_FLOAT, terms))
	axis := n.integers(1)
	dot := n.op("ReduceSum", []string{n.op("Mul", []string{query, document}), axis}, attrInt("keepdims", 1))
	norm := func(x string) string {
		return n.op("ReduceL2", []string{x}, attrInts("axes", 1), attrInt("keepdims", 1))
	}
	n.output("similarity", n.op("Div", []string{dot, n.op("Mul", []string{norm(query), norm(document)})}), 1)
}

// lstm reads words from first to last and classifies by its last state.
func lstm(n *network) {
	const vocabulary, words, width, cells, answers = 2365, 16, 512, 1024, 2365
	ids := n.op("Transpose", []string{n.input("words", onnxpb.TensorProto_INT64, words)}, attrInts("perm", 1, 0))
	x := n.embedding(ids, vocabulary, width)
	_, last := n.lstmLayer(x, width, cells, 1)
	last = n.op("Squeeze", []string{last, n.integers(0)})
	n.output("answers", n.softmax(n.dense(last, cells, answers, 1)), answers)
}

// lstmLayer reads x, [words, batch, width]. It returns the states after every word, [words,
// 1, batch, cells], and the one after the last, [1, batch, cells]. [network.weight]
// explains gain, here that of x.
func (n *network) lstmLayer(x string, width, cells int64, gain float64) (states, last string) {
	name := n.next("LSTM")
	out := n.ops("LSTM", 2, []string{x,
		n.weight(name+".input", gain, width, 1, 4*cells, width),
		n.weight(name+".recurrent", 1, cells, 1, 4*cells, cells),
		n.around(name+".bias", 0, 0.05, 1, 8*cells),
	}, attrInt("hidden_size", cells))
	return out[0], out[1]
}

// rnnLength is the number of vectors that an rnn reads.
const rnnLength = 20

// rnn is a stack of layers of LSTM. Its output is the last layer's last state.
func rnn(layers int) func(*network) {
	return func(n *network) {
		const cells = 2048
		x := n.op("Transpose", []string{n.input("vectors", onnxpb.TensorProto_FLOAT, rnnLength, cells)}, attrInts("perm", 1, 0, 2))
		var last string
		for layer := range layers {
			if layer > 0 {
				x = n.op("Squeeze", []string{x, n.integers(1)})
			}
			x, last = n.lstmLayer(x, cells, cells, 8)
		}
		n.output("state", n.op("Squeeze", []string{last, n.integers(0)}), cells)
	}
}

// textCNN is Kim's network: convolutions over 3, 4 and 5 words at a time, the
// maximum of each filter over the sentence, one dense layer.
func textCNN(n *network) {
	const vocabulary, words, width, filters, classes = 6500, 69, 300, 256, 69
	ids := n.input("words", onnxpb.TensorProto_INT64, words)
	x := n.op("Transpose", []string{n.embedding(ids, vocabulary, width)}, attrInts("perm", 0, 2, 1))
	var found []string
	for _, span := range []int64{3, 4, 5} {
		name := n.next("Conv")
		y := n.relu(n.op("Conv", []string{x,
			n.weight(name+".weight", 2, width*span, filters, width, span),
			n.around(name+".bias", 0, 0.05, filters),
		}, attrInts("kernel_shape", span), attrInts("strides", 1), attrInts("pads", (span-1)/2, span/2)))
		found = append(found, n.flatten(n.op("GlobalMaxPool", []string{y})))
	}
	all := n.op("Concat", found, attrInt("axis", 1))
	n.output("classes", n.softmax(n.dense(all, 3*filters, classes, 1)), classes)
}
