package cuda

/*
#include "session.h"
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// ports reads the model's inputs or outputs from the session and checks that instances can
// serve them. The error wraps [model.ErrNoBatch] if there is no batch dimension.
func (e *Engine) ports(kind string, output C.int) ([]tensor.Info, error) {
	n := C.session_ports(e.session, output)
	if n == 0 {
		return nil, fmt.Errorf("the model has no %s", kind)
	}
	var all []tensor.Info
	for i := range n {
		var p C.port
		err := failed(C.session_port(e.session, output, i, &p))
		name := C.GoString(p.name)
		C.free(unsafe.Pointer(p.name))
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", kind, name, err)
		}
		t, ok := typeOf(p._type)
		if !ok {
			return nil, fmt.Errorf("%s %q has elements of the type %d, which requests cannot carry", kind, name, int(p._type))
		}
		shape := shapeFrom(&p)
		if len(shape) == 0 || shape[0] >= 0 {
			return nil, fmt.Errorf("%w: %s %q has the shape %v, its first dimension must be dynamic", model.ErrNoBatch, kind, name, shape)
		}
		all = append(all, tensor.Info{Name: name, Type: t, Shape: shape})
	}
	return all, nil
}

// shapeFrom returns a shape, with -1 for dynamic dimensions.
func shapeFrom(p *C.port) []int64 {
	shape := make([]int64, p.dimensions)
	for d := range shape {
		shape[d] = max(int64(p.shape[d]), -1)
	}
	return shape
}

// openBuffers allocates memory for the largest batch. For inputs and outputs of unknown shapes
// it grows later.
func (e *Engine) openBuffers() error {
	e.buckets = buckets(e.options.MaxBatch)
	in, err := sizesOf(e.inputs, e.options.MaxBatch)
	if err != nil {
		return err
	}
	out, err := sizesOf(e.outputs, e.options.MaxBatch)
	if err != nil {
		return err
	}
	return e.grow(place(in).size, place(out).size)
}

// grow makes the regions at least as large. Their addresses change, so nothing may be bound.
func (e *Engine) grow(in, out int) error {
	if in > e.inBytes {
		C.host_release(e.session, e.from)
		C.device_release(e.session, e.in)
		e.from, e.in, e.inBytes = nil, 0, 0
		if err := failed(C.host_reserve(e.session, C.size_t(in), &e.from)); err != nil {
			return fmt.Errorf("%d bytes for inputs: %w", in, err)
		}
		if err := failed(C.device_reserve(e.session, C.size_t(in), &e.in)); err != nil {
			return fmt.Errorf("%d bytes for inputs: %w", in, err)
		}
		e.inBytes = in
	}
	if out > e.outBytes {
		C.host_release(e.session, e.to)
		C.device_release(e.session, e.out)
		e.to, e.out, e.outBytes = nil, 0, 0
		if err := failed(C.host_reserve(e.session, C.size_t(out), &e.to)); err != nil {
			return fmt.Errorf("%d bytes for outputs: %w", out, err)
		}
		if err := failed(C.device_reserve(e.session, C.size_t(out), &e.out)); err != nil {
			return fmt.Errorf("%d bytes for outputs: %w", out, err)
		}
		e.outBytes = out
	}
	return nil
}

// release frees the batches and the memory.
func (e *Engine) release() {
	for rows, b := range e.batches {
		e.discard(b)
		delete(e.batches, rows)
	}
	C.host_release(e.session, e.from)
	C.host_release(e.session, e.to)
	C.device_release(e.session, e.in)
	C.device_release(e.session, e.out)
	e.from, e.to, e.in, e.out = nil, nil, 0, 0
}

func (e *Engine) discard(b *prepared) {
	C.batch_close(e.session, b.c)
	C.free(unsafe.Pointer(b.c))
}

// prepare binds the memory for a number of rows. shapes are the inputs'.
func (e *Engine) prepare(rows int, shapes [][]int64) (*prepared, error) {
	in := make([]int, len(shapes))
	for i, shape := range shapes {
		var err error
		if in[i], err = bytesOf(e.inputs[i].Type, shape); err != nil {
			return nil, fmt.Errorf("input %q: %w", e.inputs[i].Name, err)
		}
	}
	out, err := sizesOf(e.outputs, rows)
	if err != nil {
		return nil, err
	}
	b := &prepared{in: place(in), out: place(out)}
	if err := e.grow(b.in.size, b.out.size); err != nil {
		return nil, err
	}
	b.c = (*C.batch)(C.calloc(1, C.sizeof_batch))
	b.c.in, b.c.out, b.c.from, b.c.to = e.in, e.out, e.from, e.to
	b.c.in_bytes, b.c.out_bytes = C.size_t(b.in.size), C.size_t(b.out.size)
	if err := e.bind(b, rows, shapes); err != nil {
		e.discard(b)
		return nil, err
	}
	return b, nil
}

func (e *Engine) bind(b *prepared, rows int, shapes [][]int64) error {
	if err := failed(C.batch_open(e.session, b.c)); err != nil {
		return err
	}
	for i, info := range e.inputs {
		at, host := e.in+C.address(b.in.offsets[i]), C.int(0)
		if e.onHost[i] {
			at, host = C.address(uintptr(e.from))+C.address(b.in.offsets[i]), 1
		}
		if err := e.bindPort(b, 0, info, shapes[i], host, at, b.in.sizes[i]); err != nil {
			return fmt.Errorf("input %q: %w", info.Name, err)
		}
	}
	for i, info := range e.outputs {
		shape, known := shapeOf(info, rows)
		var err error
		if known {
			err = e.bindPort(b, 1, info, shape, 0, e.out+C.address(b.out.offsets[i]), b.out.sizes[i])
		} else {
			name := C.CString(info.Name)
			err = failed(C.batch_bind_unknown(e.session, b.c, name))
			C.free(unsafe.Pointer(name))
		}
		if err != nil {
			return fmt.Errorf("output %q: %w", info.Name, err)
		}
	}
	return nil
}

func (e *Engine) bindPort(b *prepared, output C.int, info tensor.Info, shape []int64, host C.int, at C.address, size int) error {
	name := C.CString(info.Name)
	defer C.free(unsafe.Pointer(name))
	return failed(C.batch_bind(e.session, b.c, output, name, elements[info.Type], (*C.int64_t)(&shape[0]), C.size_t(len(shape)), host, at, C.size_t(size)))
}

// runPlain runs without a graph, on the engine's thread. Where shapes are known, the memory
// stays bound for the next batch of as many rows.
func (e *Engine) runPlain(rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	if b, ok := e.batches[rows]; ok {
		return e.run(b, rows, inputs)
	}
	shapes := make([][]int64, len(inputs))
	for i, in := range inputs {
		shapes[i] = in.Shape
	}
	b, err := e.prepare(rows, shapes)
	if err != nil {
		return nil, err
	}
	if e.static() == "" {
		e.batches[rows] = b
	} else {
		defer e.discard(b)
	}
	return e.run(b, rows, inputs)
}

// static says which input or output has an unknown shape, "" if none has.
func (e *Engine) static() string {
	if name, ok := static(e.inputs); !ok {
		return fmt.Sprintf("input %q has dynamic dimensions", name)
	}
	if name, ok := static(e.outputs); !ok {
		return fmt.Sprintf("output %q has dynamic dimensions", name)
	}
	return ""
}

// run copies the inputs, computes and returns the outputs of the first rows.
func (e *Engine) run(b *prepared, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	join(unsafe.Slice((*byte)(e.from), e.inBytes), b.in, inputs)
	var ms [3]C.float
	if err := failed(C.batch_run(e.session, b.c, &ms[0])); err != nil {
		return nil, err
	}
	e.times = Times{In: 1000 * float64(ms[0]), Compute: 1000 * float64(ms[1]), Out: 1000 * float64(ms[2])}
	outputs := make([]tensor.Tensor, len(e.outputs))
	for i, info := range e.outputs {
		shape, known := shapeOf(info, rows)
		outputs[i] = tensor.Tensor{Name: info.Name, Type: info.Type, Shape: shape}
		var err error
		if known {
			err = e.split(b, i, &outputs[i])
		} else {
			err = e.fetch(b, i, rows, &outputs[i])
		}
		if err != nil {
			return nil, fmt.Errorf("output %q: %w", info.Name, err)
		}
	}
	return outputs, nil
}

// split copies an output out of the region.
func (e *Engine) split(b *prepared, i int, to *tensor.Tensor) error {
	size, err := bytesOf(to.Type, to.Shape)
	if err != nil {
		return err
	}
	region := unsafe.Slice((*byte)(e.to), e.outBytes)
	to.Data = append(make([]byte, 0, size), region[b.out.offsets[i]:][:size]...)
	return nil
}

// fetch copies an output that ONNX Runtime allocated.
func (e *Engine) fetch(b *prepared, i, rows int, to *tensor.Tensor) error {
	var p C.port
	var data C.address
	var value unsafe.Pointer
	err := failed(C.batch_output(e.session, b.c, C.size_t(i), &p, &data, &value))
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
	return failed(C.batch_fetch(e.session, data, unsafe.Pointer(&to.Data[0]), C.size_t(len(to.Data))))
}
