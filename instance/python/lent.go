package python

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/instance/shared"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Lend implements instance.LendingEngine. It returns size bytes of the memory shared with
// the process and the function that frees them, nil if there are none now.
func (e *Engine) Lend(size int) (buffer []byte, release func()) {
	s := e.inputs.Load()
	if s == nil {
		return nil, nil
	}
	lent, err := s.Lend(int64(size))
	if err != nil { // The process has just exited, or memory is short.
		return nil, nil
	}
	return lent.Data(), func() { s.Free(lent) }
}

// RunRequests implements instance.RequestEngine. It copies the outputs out of the shared
// memory.
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

// window is the part of the shared memory that holds a batch's answers.
type window struct {
	of   *shared.Memory
	lent *shared.Part
}

// newWindow lends the part of the memory that contains the answers' tensors.
func newWindow(of *shared.Memory, answers []answer) (window, error) {
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
	lent, err := of.Hold(min(from, end), end)
	return window{of, lent}, err
}

func (w window) release() { w.of.Free(w.lent) }

// bytes returns a tensor's size in bytes, which is checked.
func (p placed) bytes() (int64, error) {
	elements, err := tensor.Elements(p.Shape)
	if err == nil && p.Type == tensor.Bytes && p.At >= 0 && p.At <= maxPlace && p.Size >= 0 && p.Size <= maxPlace {
		return p.Size, nil
	}
	if err != nil || p.Type.Size() == 0 || p.At < 0 || p.At > maxPlace || elements > maxPlace {
		return 0, fmt.Errorf("output %q: %s %v at %d", p.Name, p.Type, p.Shape, p.At)
	}
	return elements * int64(p.Type.Size()), nil
}

// maxPlace is more bytes than any machine has. Small multiples of it do not overflow an
// int64.
const maxPlace = 1 << 48

// tensor returns a tensor whose data are in the window, without a copy.
func (w window) tensor(p placed) (tensor.Tensor, error) {
	size, err := p.bytes()
	if err != nil {
		return tensor.Tensor{}, err
	}
	from := p.At - w.lent.From()
	t := tensor.Tensor{Name: p.Name, Type: p.Type, Shape: slices.Clone(p.Shape), Data: w.lent.Data()[from : from+size : from+size]}
	if t.Type == tensor.Bytes {
		n, err := tensor.Elements(t.Shape)
		if err == nil {
			err = tensor.CheckStrings(t.Data, n)
		}
		if err != nil {
			return tensor.Tensor{}, fmt.Errorf("output %q: %w", t.Name, err)
		}
	}
	return t, nil
}

// put returns the tensors' places in the file. It copies those that are not in the file
// yet; done frees the copies. size is the end of the last tensor.
func put(s *shared.Memory, tensors []tensor.Tensor) (places []placed, size int64, done func(), err error) {
	var copies []tensor.Tensor
	var at []int64
	var room int64
	for _, t := range tensors {
		place := placed{Info: tensor.Info{Name: t.Name, Type: t.Type, Shape: t.Shape}, Size: int64(len(t.Data))}
		var there bool
		if place.At, there = s.Find(t.Data); !there {
			copies, at = append(copies, t), append(at, room)
			place.At = -1
			room += shared.Aligned(int64(len(t.Data)))
		}
		places = append(places, place)
	}
	lent, err := s.Lend(room)
	if err != nil {
		return nil, 0, nil, err
	}
	data, next := lent.Data(), 0
	for i := range places {
		if places[i].At < 0 {
			copy(data[at[next]:], copies[next].Data)
			places[i].At = lent.From() + at[next]
			next++
		}
		size = max(size, places[i].At+int64(len(tensors[i].Data)))
	}
	return places, size, func() { s.Free(lent) }, nil
}
