package ragged

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// Padding says how rows of different lengths run together in a model whose inputs all have the shape [rows, length]. One
// of them is a mask: 1 where a row has an element, 0 where it is filled up. It is for a model of which it was tried that
// filling up changes no answer.
type Padding struct {
	// Mask is the position of the mask among the inputs.
	Mask int `json:"mask"`
	// Axes are, for each output, the dimensions that have the length of the run. Those of a row's answer are cut to the
	// row's own length.
	Axes [][]int `json:"axes"`
}

// MaskOf returns the position of the mask among inputs whose rows could be padded, -1 without one. why says what lacks
// in a model of tokens; it is "" for any other model, and for one whose rows have one length.
func MaskOf(inputs []tensor.Info) (mask int, why string) {
	isToken := func(in tensor.Info) bool {
		return in.Edge == nil && len(in.Shape) == 2 && in.Shape[1] < 0 && in.Type.Size() > 0 && !in.Type.Float()
	}
	mask = -1
	if len(inputs) == 0 || !isToken(inputs[0]) {
		return mask, ""
	}
	for i, in := range inputs {
		switch isMask := strings.Contains(strings.ToLower(in.Name), "mask"); {
		case !isToken(in):
			return -1, fmt.Sprintf("input %q is no whole numbers of the shape [rows, length]", in.Name)
		case isMask && mask >= 0:
			return -1, fmt.Sprintf("inputs %q and %q both seem to be its mask", inputs[mask].Name, in.Name)
		case isMask:
			mask = i
		}
	}
	if mask < 0 || len(inputs) == 1 {
		return -1, "no input is a mask that could tell it where a row ends"
	}
	return mask, ""
}

// Length is the length of a request's rows, 0 if they must run without padding: if the inputs differ in length, or if the
// mask of a row has other values than 1 and 0 or does not begin with 1. The answer of a row without any 1, or of an element
// before the first 1, may depend on the length.
func (p *Padding) Length(inputs []tensor.Tensor) int {
	length := inputs[0].Shape[1]
	for _, t := range inputs {
		if t.Shape[1] != length {
			return 0
		}
	}
	if length == 0 {
		return 0
	}
	mask := inputs[p.Mask]
	size := mask.Type.Size()
	one := mask.Type.Append(nil, 1)
	zero := make([]byte, size)
	for at := 0; at < len(mask.Data); at += size {
		value := mask.Data[at : at+size]
		isFirst := at/size%int(length) == 0
		if !bytes.Equal(value, one) && (isFirst || !bytes.Equal(value, zero)) {
			return 0
		}
	}
	return int(length)
}

// Row is a row of a request: row At of its inputs.
type Row struct {
	Inputs []tensor.Tensor
	At     int
}

// Length is the row's own length.
func (r Row) Length() int { return int(r.Inputs[0].Shape[1]) }

// Join returns rows as the inputs of one run: each is filled up with zeros behind its end to the longest. buffer returns
// memory of a size in bytes, with any content.
func Join(rows []Row, buffer func(size int) []byte) []tensor.Tensor {
	longest := 0
	for _, r := range rows {
		longest = max(longest, r.Length())
	}
	inputs := slices.Clone(rows[0].Inputs)
	for i := range inputs {
		size := inputs[i].Type.Size()
		inputs[i].Shape = []int64{int64(len(rows)), int64(longest)}
		data := buffer(len(rows) * longest * size)
		inputs[i].Data = data
		for _, r := range rows {
			n := r.Length() * size
			copy(data, r.Inputs[i].Data[r.At*n:(r.At+1)*n])
			clear(data[n : longest*size])
			data = data[longest*size:]
		}
	}
	return inputs
}

// Row returns the outputs of row at of a run, cut to the row's own length. Their data may be part of the run's. The error
// says that an output is shorter than the row.
func (p *Padding) Row(outputs []tensor.Tensor, at, length int) ([]tensor.Tensor, error) {
	row := slices.Clone(outputs)
	for i, t := range outputs {
		shape := slices.Clone(t.Shape)
		for _, axis := range p.Axes[i] {
			if axis >= len(shape) || shape[axis] < int64(length) {
				return nil, fmt.Errorf("output %q has the shape %v for rows of %d elements", t.Name, t.Shape, length)
			}
			shape[axis] = int64(length)
		}
		size := len(t.Data) / int(max(1, t.Shape[0]))
		row[i].Data = cut(nil, t.Data[at*size:(at+1)*size], t.Shape[1:], shape[1:], t.Type.Size())
		shape[0] = 1
		row[i].Shape = shape
	}
	return row, nil
}

// cut appends the first elements along each dimension of data. With nothing to append to it copies only what is not in
// one piece.
func cut(to, data []byte, shape, own []int64, size int) []byte {
	if len(shape) == 0 || slices.Equal(shape[1:], own[1:]) {
		n := size
		for _, d := range own {
			n *= int(d)
		}
		if to == nil {
			return data[:n:n]
		}
		return append(to, data[:n]...)
	}
	if to == nil {
		to = []byte{}
	}
	if len(data) == 0 {
		return to
	}
	step := len(data) / int(shape[0])
	for i := range int(own[0]) {
		to = cut(to, data[i*step:(i+1)*step], shape[1:], own[1:], size)
	}
	return to
}

// Extend appends the outputs of a request's next row to those of its rows before, nil for none.
func Extend(all, row []tensor.Tensor) []tensor.Tensor {
	if all == nil {
		return row
	}
	for i, t := range row {
		all[i].Data = append(all[i].Data, t.Data...)
		all[i].Shape[0] += t.Shape[0]
	}
	return all
}
