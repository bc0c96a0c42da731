package text

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Length is the number of tokens to which rows of these lengths are padded.
func (r *Reader) Length(longest int) int {
	if r.fixed > 0 {
		return r.fixed
	}
	return max(1, longest)
}

// Inputs returns the model's inputs in its order: the rows, each padded behind its end to the longest. buffer
// returns memory of a size in bytes, with any content.
func (r *Reader) Inputs(rows []Row, buffer func(size int) []byte) []tensor.Tensor {
	length := 0
	for _, row := range rows {
		length = max(length, len(row.IDs))
	}
	length = r.Length(length)
	inputs := make([]tensor.Tensor, len(r.inputs))
	for i, in := range r.inputs {
		t := tensor.Tensor{Name: in.Name, Type: in.Type, Shape: []int64{int64(len(rows)), int64(length)}}
		if in.Edge != nil { // A request of the model is one row of the engine.
			t.Shape = append([]int64{1}, t.Shape...)
		}
		t.Data = buffer(len(rows) * length * in.Type.Size())
		for j, row := range rows {
			size := length * in.Type.Size()
			fill(t.Data[j*size:(j+1)*size], in.Type, r.column(in.Name, row), r.padding(in.Name), len(row.IDs))
		}
		inputs[i] = t
	}
	return inputs
}

// column returns the values of a row for an input, nil if all are the same: 1 in the mask, 0 in the types.
func (r *Reader) column(input string, row Row) []int32 {
	switch input {
	case IDsInput:
		return row.IDs
	case typeInput:
		return row.TypeIDs
	}
	return nil
}

// padding is the value behind a row's end, and the value of the row itself if it has no column.
func (r *Reader) padding(input string) (values [2]int32) {
	switch input {
	case IDsInput:
		values[0] = r.pad
	case maskInput:
		values[1] = 1
	}
	return values
}

// fill writes a row of n values, and the padding behind it.
func fill(to []byte, kind tensor.Type, column []int32, padding [2]int32, n int) {
	size := kind.Size()
	for i := range len(to) / size {
		value := padding[0]
		switch {
		case i < n && column != nil:
			value = column[i]
		case i < n:
			value = padding[1]
		}
		if kind == tensor.Int32 {
			binary.LittleEndian.PutUint32(to[4*i:], uint32(value))
		} else {
			binary.LittleEndian.PutUint64(to[8*i:], uint64(value))
		}
	}
}

// Answers returns the vector or the logit of each row from the model's outputs for these rows. The error says that
// the outputs do not have the shape that the model states.
func (r *Reader) Answers(rows []Row, outputs []tensor.Tensor) ([][]float32, error) {
	t := outputs[r.output]
	shape := t.Shape
	if r.inputs[0].Edge != nil && len(shape) > 0 {
		shape = shape[1:]
	}
	n, dims := len(rows), len(shape)
	if dims < 1 || shape[0] != int64(n) {
		return nil, fmt.Errorf("output %q has the shape %v for %d rows", t.Name, shape, n)
	}
	element := t.Type.Size()
	size := len(t.Data) / element / n
	whole := r.Reranks() || r.settings.Pooling == bundle.PoolNone
	switch {
	case r.Reranks() && size != 1:
		return nil, fmt.Errorf("output %q has %d scores for each row; a reranker's has one", t.Name, size)
	case !whole && (dims != 3 || shape[1] < 1):
		return nil, fmt.Errorf("output %q has the shape %v; it must be [batch, sequence, size]", t.Name, shape)
	}
	answers := make([][]float32, n)
	var values []float32
	for i, row := range rows {
		own := t.Data[i*size*element : (i+1)*size*element]
		if whole {
			answers[i] = t.Type.AppendFloats(nil, own)
		} else {
			width := int(shape[2])
			if int64(len(row.IDs)) > shape[1] {
				return nil, fmt.Errorf("output %q has the vectors of %d tokens; a row has %d", t.Name, shape[1], len(row.IDs))
			}
			values = t.Type.AppendFloats(values[:0], own[:len(row.IDs)*width*element])
			answers[i] = pool(r.settings.Pooling, values, width, len(row.IDs))
		}
		if len(r.layers) > 0 {
			if len(answers[i]) != r.layers[0].In {
				return nil, fmt.Errorf("output %q has vectors of %d elements; text.dense takes %d", t.Name, len(answers[i]), r.layers[0].In)
			}
			answers[i] = through(r.layers, answers[i])
		}
		if r.settings.Normalize {
			Normalize(answers[i])
		}
	}
	return answers, nil
}

// pool makes the vector of a text from those of its tokens. The last of them is before the padding.
func pool(pooling string, tokens []float32, width, length int) []float32 {
	vector := make([]float32, width)
	switch {
	case length == 0:
	case pooling == bundle.PoolFirst:
		copy(vector, tokens)
	case pooling == bundle.PoolLast:
		copy(vector, tokens[(length-1)*width:])
	case pooling == bundle.PoolMax:
		copy(vector, tokens)
		for i := range length {
			for j, v := range tokens[i*width : (i+1)*width] {
				vector[j] = max(vector[j], v)
			}
		}
	default:
		setMean(vector, tokens, length, pooling == bundle.PoolWeighted)
	}
	return vector
}

// setMean sets a vector to the mean of those of its tokens. If it is weighted, token i counts i+1 times.
func setMean(vector, tokens []float32, length int, weighted bool) {
	width := len(vector)
	sums, weights := make([]float64, width), 0.0
	for i := range length {
		weight := 1.0
		if weighted {
			weight = float64(i + 1)
		}
		weights += weight
		for j, v := range tokens[i*width : (i+1)*width] {
			sums[j] += weight * float64(v)
		}
	}
	for j, sum := range sums {
		vector[j] = float32(sum / weights)
	}
}

// Normalize gives a vector the length 1. A vector of zeros stays one.
func Normalize(vector []float32) {
	sum := 0.0
	for _, v := range vector {
		sum += float64(v) * float64(v)
	}
	length := max(math.Sqrt(sum), 1e-12)
	for i, v := range vector {
		vector[i] = float32(float64(v) / length)
	}
}
