package operator

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Samples makes inputs of the operator's [Operator.Model] at a batch size, in the
// model's order. The same seed gives the same inputs. They resemble the operator's
// inputs in a real model: numbers around 0, words within their table, masks of ones and
// then zeros. Values can change the time: a softmax of zeros is much faster.
func (o *Operator) Samples(batch int, seed uint64) ([]tensor.Tensor, error) {
	if batch < 1 || batch > model.MaxBatch {
		return nil, fmt.Errorf("a batch of %d: it must be from 1 to %d", batch, model.MaxBatch)
	}
	var all []tensor.Tensor
	for i, in := range o.Inputs {
		if in.Role == Absent || in.Same > 0 || !in.sent() {
			continue
		}
		t := tensor.Tensor{Name: fmt.Sprintf("in%d", i), Type: in.Type, Shape: in.At(batch)}
		if len(t.Shape) == 0 {
			t.Shape = []int64{1}
		}
		var err error
		if in.Role == Contents {
			for _, d := range in.Contents {
				t.Data = appendWhole(t.Data, in.Type, d.At(batch))
			}
		} else if t.Data, err = o.filling(i, t.Shape).fill(t.Shape, rand.New(rand.NewPCG(seed, uint64(i)))); err != nil {
			return nil, fmt.Errorf("input %d of %s at a batch of %d: %w", i, o.Type, batch, err)
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		all = append(all, unread)
	}
	return all, nil
}

// unread is the input of an operator without inputs.
var unread = tensor.Tensor{Name: "unread", Type: tensor.Bool, Shape: []int64{1}, Data: []byte{1}}

// filling describes the values of input i with that shape.
func (o *Operator) filling(i int, shape []int64) filling {
	in := o.Inputs[i]
	f := filling{elem: in.Type, kind: kindOf(o.name(), i), bound: in.Lookup, width: 1}
	if len(shape) > 0 {
		f.row = shape[len(shape)-1]
	}
	if in.Role == Weight && o.name() != "Gather" {
		f.width = 1 / math.Sqrt(float64(max(1, o.fanIn(shape))))
	}
	return f
}

// fanIn is the number of products in an output element. Weights are scaled down by its
// square root, so that outputs are about as large as inputs.
func (o *Operator) fanIn(shape []int64) int64 {
	switch {
	case len(shape) < 2:
		return 1
	case len(shape) == 2:
		return shape[0]
	case o.gates() > 0:
		return shape[2]
	}
	n := int64(1)
	for _, d := range shape[1:] {
		n *= d
	}
	return n
}

// gates is the number of gates of a recurrent operator, 0 for any other.
func (o *Operator) gates() int {
	return map[string]int{"LSTM": 4, "GRU": 3, "RNN": 1}[o.name()]
}
