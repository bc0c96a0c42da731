package cuda

/*
#include "session.h"
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"unsafe"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// lane is a session with a stream, a thread and buffers of its own, so it runs independently of
// other lanes.
type lane struct {
	e *Engine
	// rows is the maximum number of rows of a run, limit the session's memory in bytes or 0.
	rows   int
	limit  int64
	thread *thread

	// mu is held for each run and each step of a capture.
	mu sync.Mutex
	c  *C.session
	// from and to are pinned memory, in and out the device's. They hold inBytes and outBytes.
	from, to          unsafe.Pointer
	in, out           C.address
	inBytes, outBytes int
	batches           map[int]*prepared
}

// prepared is a number of rows with its places in memory. Runs launch its graph if graph is set.
type prepared struct {
	c       *C.batch
	in, out layout
	graph   bool
}

func (e *Engine) newLane(rows int, limit int64) *lane {
	return &lane{e: e, rows: rows, limit: limit, thread: newThread(), c: (*C.session)(C.calloc(1, C.sizeof_session)), batches: map[int]*prepared{}}
}

// step runs f on the lane's thread, with no other run of the lane at the same time.
func (l *lane) step(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.thread.do(f)
}

// nodes returns the number of nodes by type of each captured graph.
func (l *lane) nodes() map[int]map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[int]map[string]int{}
	for rows, b := range l.batches {
		counts := map[string]int{}
		for i, n := range b.c.nodes {
			if n > 0 {
				counts[C.GoString(C.node_names[i])] = int(n)
			}
		}
		if len(counts) > 0 {
			all[rows] = counts
		}
	}
	return all
}

// close frees the lane. Nothing may run.
func (l *lane) close() error {
	err := l.thread.do(func() error {
		l.release()
		C.session_close(l.e.c, l.c)
		return nil
	})
	l.thread.end()
	C.free(unsafe.Pointer(l.c))
	return err
}

func (l *lane) openStream() error { return failed(C.stream_open(l.e.c, l.c)) }

// settings configure the provider. Its memory grows by the requested size, because a share of
// a GPU has a fixed amount.
func (l *lane) settings() map[string]string {
	s := map[string]string{
		"device_id":              "0",
		"arena_extend_strategy":  "kSameAsRequested",
		"cudnn_conv_algo_search": "HEURISTIC",
	}
	if l.e.options.Exhaustive {
		s["cudnn_conv_algo_search"] = "EXHAUSTIVE"
	}
	if os.Getenv(tf32) == "0" {
		s["use_tf32"] = "0"
	}
	if l.limit > 0 {
		s["gpu_mem_limit"] = strconv.FormatInt(l.limit, 10)
	}
	return s
}

func (l *lane) provide() error {
	if l.e.options.onHost {
		return failed(C.session_provide(l.c, nil, nil, 0))
	}
	settings := l.settings()
	n := len(settings)
	all := C.calloc(C.size_t(2*n), C.size_t(unsafe.Sizeof((*C.char)(nil))))
	defer C.free(all)
	words := unsafe.Slice((**C.char)(all), 2*n)
	i := 0
	for key, value := range settings {
		words[i], words[n+i] = C.CString(key), C.CString(value)
		defer C.free(unsafe.Pointer(words[i]))
		defer C.free(unsafe.Pointer(words[n+i]))
		i++
	}
	return failed(C.session_provide(l.c, &words[0], &words[n], C.size_t(n)))
}

// openSession loads the copy of the model that is kept, if it is whole, or the model. The engine's first
// session writes a copy that is missing or cannot be loaded.
func (l *lane) openSession() error {
	defer C.host_trim()
	k, first := &l.e.copy, l == l.e.lanes[0]
	if k.ready {
		err := l.openCopy()
		if first {
			l.e.fromCopy = err == nil
		}
		if err == nil {
			return nil
		}
		// The options name the copy's weights.
		if err := l.provide(); err != nil {
			return err
		}
		if first {
			k.failed(err)
			k.ready, k.damaged = false, true
			l.e.weights.close(l.e)
			l.e.weights = nil
		}
	}
	if first && k.begin() {
		err := l.openFile(l.e.options.Model, false, filepath.Join(k.work.Path, copyModel))
		if err == nil {
			return nil
		}
		k.failed(err)
		k.abandon()
	}
	return l.openFile(l.e.options.Model, false, "")
}

// openCopy loads the kept copy with the weights that are on the device.
func (l *lane) openCopy() error {
	if err := l.e.weights.use(l); err != nil {
		return err
	}
	return l.openFile(l.e.copy.model(), true, "")
}

func (l *lane) openFile(file string, optimised bool, keep string) error {
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	if keep == "" {
		return failed(C.session_open(l.e.c, l.c, name, flag(optimised), nil))
	}
	to := C.CString(keep)
	defer C.free(unsafe.Pointer(to))
	return failed(C.session_open(l.e.c, l.c, name, flag(optimised), to))
}

// used returns how many bytes of the device the session took.
func (l *lane) used() (int64, error) {
	var bytes C.int64_t
	err := l.step(func() error { return failed(C.session_used(l.e.c, l.c, &bytes)) })
	return int64(bytes), err
}

// openBuffers allocates memory for the largest batch. For inputs and outputs of unknown shapes
// it grows later.
func (l *lane) openBuffers() error {
	in, err := sizesOf(l.e.inputs, l.rows)
	if err != nil {
		return err
	}
	out, err := sizesOf(l.e.outputs, l.rows)
	if err != nil {
		return err
	}
	return l.grow(place(in).size, place(out).size)
}

// grow makes the regions at least as large. Their addresses change, so nothing may be bound.
func (l *lane) grow(in, out int) error {
	if in > l.inBytes {
		C.host_release(l.e.c, l.from)
		C.device_release(l.e.c, l.in)
		l.from, l.in, l.inBytes = nil, 0, 0
		if err := failed(C.host_reserve(l.e.c, C.size_t(in), &l.from)); err != nil {
			return fmt.Errorf("%d bytes for inputs: %w", in, err)
		}
		if err := failed(C.device_reserve(l.e.c, C.size_t(in), &l.in)); err != nil {
			return fmt.Errorf("%d bytes for inputs: %w", in, err)
		}
		l.inBytes = in
	}
	if out > l.outBytes {
		C.host_release(l.e.c, l.to)
		C.device_release(l.e.c, l.out)
		l.to, l.out, l.outBytes = nil, 0, 0
		if err := failed(C.device_reserve(l.e.c, C.size_t(out), &l.out)); err != nil {
			return fmt.Errorf("%d bytes for outputs: %w", out, err)
		}
		l.outBytes = out
	}
	if l.e.options.Single {
		return nil
	}
	return l.pinOutputs()
}

// pinOutputs allocates the host's memory for outputs. An engine with [Options.Single] does so
// at the first run, since Repeat copies none.
func (l *lane) pinOutputs() error {
	if l.to != nil || l.outBytes == 0 {
		return nil
	}
	if err := failed(C.host_reserve(l.e.c, C.size_t(l.outBytes), &l.to)); err != nil {
		return fmt.Errorf("%d bytes for outputs: %w", l.outBytes, err)
	}
	return nil
}

// forget frees the batches.
func (l *lane) forget() {
	for rows, b := range l.batches {
		l.discard(b)
		delete(l.batches, rows)
	}
}

// release frees the batches and the memory.
func (l *lane) release() {
	l.forget()
	C.host_release(l.e.c, l.from)
	C.host_release(l.e.c, l.to)
	C.device_release(l.e.c, l.in)
	C.device_release(l.e.c, l.out)
	l.from, l.to, l.in, l.out = nil, nil, 0, 0
}

func (l *lane) discard(b *prepared) {
	C.batch_close(l.e.c, b.c)
	C.free(unsafe.Pointer(b.c))
}

// prepare binds the memory for a number of rows of inputs like these.
func (l *lane) prepare(rows int, inputs []tensor.Tensor) (*prepared, error) {
	in, shapes := make([]int, len(inputs)), make([][]int64, len(inputs))
	for i, t := range inputs {
		shapes[i] = append([]int64{int64(rows)}, t.Shape[1:]...)
		var err error
		if in[i], err = bytesOf(t.Type, shapes[i]); err != nil {
			return nil, fmt.Errorf("input %q: %w", l.e.inputs[i].Name, err)
		}
	}
	out, err := sizesOf(l.e.outputs, rows)
	if err != nil {
		return nil, err
	}
	b := &prepared{in: place(in), out: place(out)}
	if err := l.grow(b.in.size, b.out.size); err != nil {
		return nil, err
	}
	b.c = (*C.batch)(C.calloc(1, C.sizeof_batch))
	b.c.in, b.c.out, b.c.from, b.c.to = l.in, l.out, l.from, l.to
	b.c.in_bytes, b.c.out_bytes = C.size_t(b.in.size), C.size_t(b.out.size)
	if err := l.bind(b, rows, shapes); err != nil {
		l.discard(b)
		return nil, err
	}
	return b, nil
}

func (l *lane) bind(b *prepared, rows int, shapes [][]int64) error {
	if err := failed(C.batch_open(l.c, b.c)); err != nil {
		return err
	}
	for i, info := range l.e.inputs {
		at, host := l.in+C.address(b.in.offsets[i]), C.int(0)
		if l.e.onHost[i] {
			at, host = C.address(uintptr(l.from))+C.address(b.in.offsets[i]), 1
		}
		if err := l.bindPort(b, 0, info, shapes[i], host, at, b.in.sizes[i]); err != nil {
			return fmt.Errorf("input %q: %w", info.Name, err)
		}
	}
	for i, info := range l.e.outputs {
		shape, known := shapeOf(info, rows)
		var err error
		if known {
			err = l.bindPort(b, 1, info, shape, 0, l.out+C.address(b.out.offsets[i]), b.out.sizes[i])
		} else {
			name := C.CString(info.Name)
			err = failed(C.batch_bind_unknown(l.e.c, b.c, name))
			C.free(unsafe.Pointer(name))
		}
		if err != nil {
			return fmt.Errorf("output %q: %w", info.Name, err)
		}
	}
	return nil
}

func (l *lane) bindPort(b *prepared, output C.int, info tensor.Info, shape []int64, host C.int, at C.address, size int) error {
	name := C.CString(info.Name)
	defer C.free(unsafe.Pointer(name))
	return failed(C.batch_bind(l.e.c, b.c, output, name, elements[info.Type], (*C.int64_t)(&shape[0]), C.size_t(len(shape)), host, at, C.size_t(size)))
}
