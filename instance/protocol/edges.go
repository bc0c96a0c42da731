package protocol

import (
	"slices"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// Own describes an engine's tensors as clients send and get them: with the model's own shapes.
// The batch is then at [tensor.Edge].Axis, or first without an edge.
func Own(engine []tensor.Info) []tensor.Info {
	out := slices.Clone(engine)
	for i := range out {
		if out[i].Edge != nil {
			out[i].Shape = out[i].Edge.Shape
		}
	}
	return out
}

// batchAxis is the position of the batch in a tensor's own shape, -1 if it has none.
func batchAxis(info tensor.Info) int {
	if info.Edge == nil {
		return 0
	}
	return info.Edge.Axis
}

// rowsOf is the number of rows of a tensor with an own shape. A tensor without a batch is one.
func rowsOf(info tensor.Info, shape []int64) int64 {
	if axis := batchAxis(info); axis >= 0 {
		return shape[axis]
	}
	return 1
}

// takesWhole reports whether a model with these inputs takes one request an execution. Requests then have the
// model's own shapes, and any number of elements along each dynamic dimension.
func takesWhole(inputs []tensor.Info) bool {
	return slices.ContainsFunc(inputs, func(i tensor.Info) bool { return batchAxis(i) < 0 })
}

// Inward brings an input from its own shape into the engine's, with the rows in front.
func Inward(info tensor.Info, t tensor.Tensor) (tensor.Tensor, error) {
	switch axis := batchAxis(info); {
	case axis < 0:
		t.Shape = append([]int64{1}, t.Shape...)
	case axis > 0:
		return move(t, axis, true)
	}
	return t, nil
}

// Outward brings an output from the engine's shape into its own.
func Outward(info tensor.Info, t tensor.Tensor) (tensor.Tensor, error) {
	switch axis := batchAxis(info); {
	case axis < 0:
		t.Shape = t.Shape[1:]
	case axis > 0:
		return move(t, axis, false)
	}
	return t, nil
}

// move moves an axis to the front, or the front to an axis. Elements are only copied if more
// than one row makes that necessary.
func move(t tensor.Tensor, axis int, front bool) (tensor.Tensor, error) {
	own := slices.Clone(t.Shape)
	if front {
		t.Shape = slices.Insert(slices.Delete(slices.Clone(own), axis, axis+1), 0, own[axis])
	} else {
		own = slices.Insert(slices.Clone(t.Shape[1:]), axis, t.Shape[0])
		t.Shape = own
	}
	outer, inner, rows := 1, 1, int(own[axis])
	for _, d := range own[:axis] {
		outer *= int(d)
	}
	for _, d := range own[axis+1:] {
		inner *= int(d)
	}
	if rows == 1 || outer == 1 {
		return t, nil
	}
	at := func(o, row int) (from int) { // of a block of elements, in blocks
		if front {
			return o*rows + row
		}
		return row*outer + o
	}
	first, second := rows, outer
	if !front {
		first, second = outer, rows
	}
	if t.Type != tensor.Bytes {
		block, out := inner*t.Type.Size(), make([]byte, 0, len(t.Data))
		for i := range first {
			for j := range second {
				from := at(j, i)
				if !front {
					from = at(i, j)
				}
				out = append(out, t.Data[from*block:(from+1)*block]...)
			}
		}
		t.Data = out
		return t, nil
	}
	all, err := t.Elements()
	if err != nil {
		return t, err
	}
	var out []byte
	for i := range first {
		for j := range second {
			from := at(j, i)
			if !front {
				from = at(i, j)
			}
			for _, e := range all[from*inner : (from+1)*inner] {
				out = tensor.AppendString(out, string(e))
			}
		}
	}
	t.Data = out
	return t, nil
}
