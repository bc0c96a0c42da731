package cuda

import (
	"fmt"
	"math"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// alignment of each input and output in bytes: the device reads whole lines of it.
const alignment = 256

// layout places tensors one behind the other in one region, so that one copy moves all.
type layout struct {
	// offsets and sizes are in bytes. An output of unknown size has the size 0.
	offsets, sizes []int
	// size of the region in bytes.
	size int
}

// place lays tensors of these sizes out.
func place(sizes []int) layout {
	l := layout{offsets: make([]int, len(sizes)), sizes: sizes}
	for i, size := range sizes {
		l.offsets[i] = l.size
		l.size += (size + alignment - 1) / alignment * alignment
	}
	return l
}

// shapeOf returns the shape of a tensor of the model for a number of rows, and whether all of
// it is known before the run.
func shapeOf(info tensor.Info, rows int) (shape []int64, known bool) {
	shape = append([]int64{int64(rows)}, info.Shape[1:]...)
	for _, d := range shape {
		if d < 0 {
			return shape, false
		}
	}
	return shape, true
}

// bytesOf returns how many bytes a tensor of this type and shape holds.
func bytesOf(t tensor.Type, shape []int64) (int, error) {
	n, err := tensor.Elements(shape)
	switch {
	case err != nil:
		return 0, err
	case n == 0:
		return 0, fmt.Errorf("the shape %v holds no element", shape)
	case t.Size() == 0:
		return 0, fmt.Errorf("elements of %s have no fixed size, so the GPU has no memory for them; run the model on the CPU", t)
	case n > math.MaxInt/int64(t.Size()):
		return 0, fmt.Errorf("shape %v is too large", shape)
	}
	return int(n) * t.Size(), nil
}

// sizesOf returns the sizes in bytes of the model's tensors for a number of rows, 0 for those
// that are not known.
func sizesOf(infos []tensor.Info, rows int) ([]int, error) {
	sizes := make([]int, len(infos))
	for i, info := range infos {
		shape, known := shapeOf(info, rows)
		if !known {
			continue
		}
		var err error
		if sizes[i], err = bytesOf(info.Type, shape); err != nil {
			return nil, fmt.Errorf("%q: %w", info.Name, err)
		}
	}
	return sizes, nil
}

// static reports whether all shapes are known but the number of rows, and names the first
// tensor of another shape.
func static(infos []tensor.Info) (name string, ok bool) {
	for _, info := range infos {
		if _, known := shapeOf(info, 1); !known {
			return info.Name, false
		}
	}
	return "", true
}

// Buckets are the batch sizes that an engine prepares by default: 1, 2, 4, … and the largest.
func Buckets(largest int) []int {
	var all []int
	for b := 1; b < largest; b *= 2 {
		all = append(all, b)
	}
	return append(all, largest)
}

// bucketFor returns the smallest bucket for a number of rows. The buckets ascend.
func bucketFor(buckets []int, rows int) int {
	for _, b := range buckets {
		if b >= rows {
			return b
		}
	}
	return rows
}

// parts splits a batch into runs of the batch sizes that are ready, in ascending order. Rows
// fill a size at least by half; otherwise smaller sizes take them. The smallest takes any.
func parts(ready []int, rows int) (sizes []int) {
	for rows > 0 {
		size := ready[0]
		for _, s := range ready {
			if s <= 2*rows {
				size = s
			}
			if s >= rows {
				break
			}
		}
		sizes, rows = append(sizes, size), rows-size
	}
	return sizes
}

// rowsOf returns n rows of each tensor. They share its memory.
func rowsOf(tensors []tensor.Tensor, from, n int) []tensor.Tensor {
	some := make([]tensor.Tensor, len(tensors))
	for i, t := range tensors {
		row := len(t.Data) / int(t.Shape[0])
		some[i] = t
		some[i].Shape = append([]int64{int64(n)}, t.Shape[1:]...)
		some[i].Data = t.Data[from*row : (from+n)*row]
	}
	return some
}

// joined appends the rows of more to those of tensors, nil for none.
func joined(tensors, more []tensor.Tensor) []tensor.Tensor {
	if tensors == nil {
		return more
	}
	for i, t := range more {
		tensors[i].Data = append(tensors[i].Data, t.Data...)
		tensors[i].Shape[0] += t.Shape[0]
	}
	return tensors
}

// join writes the inputs into the region, and zeroes behind each up to its place's size. Zero is
// a valid index in every table.
func join(region []byte, l layout, inputs []tensor.Tensor) {
	for i, in := range inputs {
		to := region[l.offsets[i] : l.offsets[i]+l.sizes[i]]
		clear(to[copy(to, in.Data):])
	}
}

// check refuses inputs that are not the model's.
func check(infos []tensor.Info, rows int, inputs []tensor.Tensor) error {
	if len(inputs) != len(infos) {
		return fmt.Errorf("%d inputs for a model with %d", len(inputs), len(infos))
	}
	for i, t := range inputs {
		if t.Type != infos[i].Type || len(t.Shape) != len(infos[i].Shape) || t.Shape[0] != int64(rows) {
			return fmt.Errorf("input %q is %s %v, the batch has %d rows of %s", t.Name, t.Type, t.Shape, rows, infos[i].Type)
		}
		for d, size := range infos[i].Shape[1:] {
			if size >= 0 && t.Shape[1+d] != size {
				return fmt.Errorf("input %q has the shape %v, the model takes %v", t.Name, t.Shape, infos[i].Shape)
			}
		}
		size, err := bytesOf(t.Type, t.Shape)
		if err != nil {
			return fmt.Errorf("input %q: %w", t.Name, err)
		}
		if size != len(t.Data) {
			return fmt.Errorf("input %q: %d bytes for %s %v, which takes %d", t.Name, len(t.Data), t.Type, t.Shape, size)
		}
	}
	return nil
}
