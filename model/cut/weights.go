package cut

import (
	"fmt"
	"io"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// Source reads weights of the whole model. [model.Weights] is one.
type Source interface {
	// ReadWeight fills b with the bytes of a weight from an offset on, row by row and
	// little-endian.
	ReadWeight(t *onnxpb.TensorProto, b []byte, offset int64) error
}

// WriteWeights writes a part's weights file. It reads what the part holds and no more, and
// keeps at most a megabyte in memory.
func WriteWeights(w io.Writer, weights []Weight, from Source) error {
	buffer := make([]byte, 1<<20)
	at := int64(0)
	for _, x := range weights {
		if _, err := w.Write(make([]byte, x.Offset-at)); err != nil {
			return err
		}
		size := int64(model.ElementType(x.From).Size())
		if x.Region == nil {
			if err := copyRun(w, buffer, x.From, from, 0, x.Bytes); err != nil {
				return fmt.Errorf("weight %q: %w", x.From.GetName(), err)
			}
			at = x.Offset + x.Bytes
			continue
		}
		err := eachRun(x.From.GetDims(), x.Region, func(first, n int64) error {
			return copyRun(w, buffer, x.From, from, first*size, n*size)
		})
		if err != nil {
			return fmt.Errorf("weight %q: %w", x.From.GetName(), err)
		}
		at = x.Offset + x.Bytes
	}
	return nil
}

func copyRun(w io.Writer, buffer []byte, t *onnxpb.TensorProto, from Source, offset, left int64) error {
	for left > 0 {
		b := buffer[:min(left, int64(len(buffer)))]
		if err := from.ReadWeight(t, b, offset); err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		offset, left = offset+int64(len(b)), left-int64(len(b))
	}
	return nil
}

// eachRun calls yield for each run of elements of a region that follow each other in a
// tensor of this shape, row by row: the position of its first element and its length. A nil
// region is the whole tensor.
func eachRun(shape []int64, r Region, yield func(first, n int64) error) error {
	if r == nil {
		r = whole(shape)
	}
	run, d := int64(1), len(shape)
	for d > 0 && r[d-1] == (Span{0, shape[d-1]}) {
		d--
		run *= shape[d]
	}
	if d > 0 {
		d--
	}
	// The dimensions before d are walked one position at a time; of d the run takes all of
	// the region's.
	stride := run
	first := int64(0)
	if len(shape) > 0 && r[d] != (Span{0, shape[d]}) {
		first, run = r[d].From*stride, r[d].Size()*stride
		stride *= shape[d]
	} else {
		d = 0
	}
	at := make([]int64, d)
	for i := range at {
		at[i] = r[i].From
	}
	for {
		offset, by := first, stride
		for i := d - 1; i >= 0; i-- {
			offset += at[i] * by
			by *= shape[i]
		}
		if err := yield(offset, run); err != nil {
			return err
		}
		i := d - 1
		for i >= 0 {
			if at[i]++; at[i] < r[i].To {
				break
			}
			at[i] = r[i].From
			i--
		}
		if i < 0 {
			return nil
		}
	}
}
