package python

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// Lend gives size bytes that the process can read, for an input to be put together
// in, and what takes them back; nil where there are none to give now.
func (e *Engine) Lend(size int) (buffer []byte, release func()) {
	s := e.inputs.Load()
	if s == nil {
		return nil, nil
	}
	lent, err := s.lend(int64(size))
	if err != nil { // The process has just gone, or memory is short.
		return nil, nil
	}
	return lent.data(), func() { s.free(lent) }
}

// RunRequests computes one batch of requests with so many rows each, the inputs of
// which are one after another. Each has outputs of its own, or an error; err is one
// of the whole batch.
func (e *Engine) RunRequests(ctx context.Context, rows []int, inputs []tensor.Tensor) (outputs [][]tensor.Tensor, failed []error, err error) {
	outputs, failed, release, err := e.RunLent(ctx, rows, inputs)
	defer release()
	for _, of := range outputs {
		for i := range of {
			of[i].Data = bytes.Clone(of[i].Data)
		}
	}
	return outputs, failed, err
}

// window is the part of the shared memory that has a batch's answers.
type window struct {
	of   *shared
	lent *part
}

// newWindow lends the part that answers say they are in.
func newWindow(of *shared, answers []answer) (window, error) {
	from, end := int64(math.MaxInt64), int64(0)
	for _, a := range answers {
		for _, o := range a.Outputs {
			size, err := o.bytes()
			if err != nil {
				return window{}, err
			}
			from, end = min(from, o.At), max(end, o.At+size)
		}
	}
	lent, err := of.hold(min(from, end), end)
	return window{of, lent}, err
}

func (w window) release() { w.of.free(w.lent) }

// bytes is a tensor's size.
func (p placed) bytes() (int64, error) {
	elements, err := tensor.Elements(p.Shape)
	if err != nil || p.Type.Size() == 0 || p.At < 0 || p.At > maxPlace || elements > maxPlace {
		return 0, fmt.Errorf("output %q: %s %v at %d", p.Name, p.Type, p.Shape, p.At)
	}
	return elements * int64(p.Type.Size()), nil
}

// maxPlace is more than any machine has, and its multiples do not overflow.
const maxPlace = 1 << 48

// tensor is one of the window's, in its place.
func (w window) tensor(p placed) (tensor.Tensor, error) {
	size, err := p.bytes()
	if err != nil {
		return tensor.Tensor{}, err
	}
	from := p.At - w.lent.from
	return tensor.Tensor{Name: p.Name, Type: p.Type, Shape: slices.Clone(p.Shape), Data: w.lent.data()[from : from+size : from+size]}, nil
}
