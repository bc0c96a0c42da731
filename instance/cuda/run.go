package cuda

/*
#include "session.h"
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// run computes a batch as one of size rows, at least as many as the inputs have. Only inputs
// with static shapes can be fewer.
func (l *lane) run(size, rows int, inputs []tensor.Tensor) (outputs []tensor.Tensor, times Times, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b, ok := l.batches[size]; ok && b.graph {
		return l.execute(b, true, rows, inputs)
	}
	err = l.thread.do(func() error {
		outputs, times, err = l.plain(size, rows, inputs)
		return err
	})
	return outputs, times, err
}

// plain runs without a graph, on the lane's thread. Where shapes are known, the memory stays
// bound for the next batch of as many rows.
func (l *lane) plain(size, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, Times, error) {
	if b, ok := l.batches[size]; ok {
		return l.execute(b, false, rows, inputs)
	}
	b, err := l.prepare(size, inputs)
	if err != nil {
		return nil, Times{}, err
	}
	if l.e.static() == "" {
		l.batches[size] = b
	} else {
		defer l.discard(b)
	}
	return l.execute(b, false, rows, inputs)
}

// execute copies the inputs, computes and returns the outputs of the first rows. The caller
// holds the lane's lock.
func (l *lane) execute(b *prepared, graph bool, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, Times, error) {
	join(unsafe.Slice((*byte)(l.from), l.inBytes), b.in, inputs)
	if err := l.pinOutputs(); err != nil {
		return nil, Times{}, err
	}
	b.c.to = l.to
	times, err := l.compute(b, graph, true, true)
	if err != nil {
		return nil, Times{}, err
	}
	outputs := make([]tensor.Tensor, len(l.e.outputs))
	for i, info := range l.e.outputs {
		shape, known := shapeOf(info, rows)
		outputs[i] = tensor.Tensor{Name: info.Name, Type: info.Type, Shape: shape}
		if known {
			err = l.split(b, i, &outputs[i])
		} else {
			err = l.fetch(b, i, rows, &outputs[i])
		}
		if err != nil {
			return nil, times, fmt.Errorf("output %q: %w", info.Name, err)
		}
	}
	return outputs, times, nil
}

// compute runs a batch, with or without the copies to and from the device.
func (l *lane) compute(b *prepared, graph, in, out bool) (Times, error) {
	var ms [3]C.float
	err := failed(C.batch_run(l.e.c, l.c, b.c, flag(graph), flag(in), flag(out), &ms[0]))
	return Times{In: 1000 * float64(ms[0]), Compute: 1000 * float64(ms[1]), Out: 1000 * float64(ms[2])}, err
}

func flag(set bool) C.int {
	if set {
		return 1
	}
	return 0
}

// split copies an output out of the region.
func (l *lane) split(b *prepared, i int, to *tensor.Tensor) error {
	size, err := bytesOf(to.Type, to.Shape)
	if err != nil {
		return err
	}
	region := unsafe.Slice((*byte)(l.to), l.outBytes)
	to.Data = append(make([]byte, 0, size), region[b.out.offsets[i]:][:size]...)
	return nil
}

// fetch copies an output that ONNX Runtime allocated.
func (l *lane) fetch(b *prepared, i, rows int, to *tensor.Tensor) error {
	var p C.port
	var data C.address
	var value unsafe.Pointer
	err := failed(C.batch_output(b.c, C.size_t(i), &p, &data, &value))
	defer C.value_release(value)
	if err != nil {
		return err
	}
	to.Shape = shapeFrom(&p)
	if len(to.Shape) == 0 || to.Shape[0] != int64(rows) {
		return fmt.Errorf("it has the shape %v for %d rows, so it cannot be split", to.Shape, rows)
	}
	n, err := tensor.Elements(to.Shape)
	if err != nil {
		return err
	}
	to.Data = make([]byte, int(n)*to.Type.Size())
	if len(to.Data) == 0 {
		return nil
	}
	return failed(C.batch_fetch(l.e.c, l.c, data, unsafe.Pointer(&to.Data[0]), C.size_t(len(to.Data))))
}
