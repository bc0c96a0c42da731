package cuda

/*
#include "session.h"
#include <stdlib.h>
*/
import "C"

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// weights are the large weights of a kept copy in one region of the device's memory. All sessions of the
// engine read them there, and those of other processes that have the same copy and the same device: a
// second instance takes memory for what it computes, and not for the weights.
type weights struct {
	region C.region
	// values are ONNX Runtime's tensors in the region, by name.
	values map[string]unsafe.Pointer
	// bytes are the weights' without what aligns them.
	bytes int64
	// shared passes the region on, nil if no other process can have it, as alone says.
	shared *shared
	alone  string
}

// Weights says where an engine has the large weights of its kept copy.
type Weights struct {
	// Bytes are the weights' on the device, which the engine's sessions share; 0 without a kept copy.
	Bytes int64 `json:"bytes"`
	// Imported is set if another process put them there, and this one holds no memory for them.
	Imported bool `json:"imported"`
	// Alone says why no other process can read them, "" if one can.
	Alone string `json:"alone,omitzero"`
	// Copied is set if Open loaded the kept copy. Problem says why there is none to load or to share, ""
	// if there is.
	Copied  bool   `json:"copied"`
	Problem string `json:"problem,omitzero"`
}

// Weights returns where the large weights are. See [Options.Copies].
func (e *Engine) Weights() Weights {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := Weights{Copied: e.fromCopy, Problem: e.copy.problem}
	if e.weights != nil {
		w.Bytes, w.Alone = e.weights.bytes, e.weights.alone
		w.Imported = e.weights.shared != nil && e.weights.shared.imported
	}
	return w
}

// placed is a weight with its place in the region.
type placed struct {
	tensor        *onnxpb.TensorProto
	offset, bytes int
}

// placeWeights lays out what a copy has in its file of weights. Every process that has the copy finds
// the same layout.
func placeWeights(m *model.Model) (all []placed, size int) {
	var sizes []int
	for _, t := range m.Proto().GetGraph().GetInitializer() {
		n := model.WeightBytes(t)
		if n == 0 || t.GetDataLocation() != onnxpb.TensorProto_EXTERNAL || locationOf(t) != copyWeights {
			continue
		}
		all, sizes = append(all, placed{tensor: t, bytes: int(n)}), append(sizes, int(n))
	}
	l := place(sizes)
	for i := range all {
		all[i].offset = l.offsets[i]
	}
	return all, l.size
}

func locationOf(t *onnxpb.TensorProto) string {
	for _, entry := range t.GetExternalData() {
		if entry.GetKey() == "location" {
			return entry.GetValue()
		}
	}
	return ""
}

// openWeights puts the kept copy's weights on the device, or finds them there. The result is nil if
// every session loads its own, because there is no copy or no large weight. Runs go on meanwhile.
func openWeights(ctx context.Context, e *Engine) (*weights, error) {
	if !e.copy.ready || e.options.Single {
		return nil, nil
	}
	w := &weights{region: C.region{descriptor: -1}, values: map[string]unsafe.Pointer{}}
	if err := w.open(ctx, e); err != nil || len(w.values) == 0 {
		w.close(e)
		if err == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("the kept copy's weights: %w", err)
	}
	return w, nil
}

func (w *weights) open(ctx context.Context, e *Engine) error {
	m, err := model.ReadOutline(e.copy.model())
	if err != nil {
		return err
	}
	all, size := placeWeights(m)
	if size == 0 {
		return nil
	}
	fill := func() error { return w.fill(ctx, e, m, all) }
	if w.shared, err = share(ctx, e, size, &w.region, fill); err != nil {
		w.alone = err.Error()
		C.region_close(e.c, &w.region)
		if err := failed(C.region_alone(e.c, C.size_t(size), &w.region)); err != nil {
			return err
		}
		if err := fill(); err != nil {
			return err
		}
	}
	for _, p := range all {
		if err := w.value(e, p); err != nil {
			return err
		}
		w.bytes += int64(p.bytes)
	}
	return nil
}

// fill copies the weights from their file to the region, on a stream of its own.
func (w *weights) fill(ctx context.Context, e *Engine, m *model.Model, all []placed) error {
	var stream C.session
	if err := failed(C.stream_open(e.c, &stream)); err != nil {
		return err
	}
	defer C.session_close(e.c, &stream)
	read := m.OpenWeights()
	defer read.Close()
	// The driver copies from pinned memory without a copy of its own.
	var staging unsafe.Pointer
	if err := failed(C.host_reserve(e.c, stagingBytes, &staging)); err != nil {
		return err
	}
	defer C.host_release(e.c, staging)
	buffer := unsafe.Slice((*byte)(staging), stagingBytes)
	for _, p := range all {
		for from := 0; from < p.bytes; from += stagingBytes {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(stagingBytes, p.bytes-from)
			if err := read.ReadWeight(p.tensor, buffer[:n], int64(from)); err != nil {
				return err
			}
			to := w.region.at + C.address(p.offset+from)
			if err := failed(C.region_fill(e.c, &stream, to, staging, C.size_t(n))); err != nil {
				return err
			}
		}
	}
	return nil
}

// stagingBytes are copied to the device at once.
const stagingBytes = 4 << 20

// value makes ONNX Runtime's tensor of a weight.
func (w *weights) value(e *Engine, p placed) error {
	shape := make([]C.int64_t, max(1, len(p.tensor.GetDims())))
	for i, d := range p.tensor.GetDims() {
		shape[i] = C.int64_t(d)
	}
	var value unsafe.Pointer
	at := w.region.at + C.address(p.offset)
	err := failed(C.value_open(e.c, 0, at, C.size_t(p.bytes), C.int(p.tensor.GetDataType()), &shape[0], C.size_t(len(p.tensor.GetDims())), &value))
	if err != nil {
		return fmt.Errorf("weight %q: %w", p.tensor.GetName(), err)
	}
	w.values[p.tensor.GetName()] = value
	return nil
}

// use lets the lane's session read the weights, once it is opened. A session that needs one elsewhere,
// such as on the host, loads that one from the file.
func (w *weights) use(l *lane) error {
	if w == nil {
		return nil
	}
	for name, value := range w.values {
		c := C.CString(name)
		err := failed(C.session_use(l.c, c, value))
		C.free(unsafe.Pointer(c))
		if err != nil {
			return err
		}
	}
	return nil
}

// close gives the region back. No session may be open.
func (w *weights) close(e *Engine) {
	if w == nil {
		return
	}
	if w.shared != nil {
		w.shared.close()
	}
	for _, value := range w.values {
		C.value_release(value)
	}
	clear(w.values)
	C.region_close(e.c, &w.region)
}
