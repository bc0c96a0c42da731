package cuda

/*
#include "session.h"
*/
import "C"

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// firstRun runs one row, which loads the kernels. For inputs of unknown sizes it does nothing.
func (e *Engine) firstRun() error {
	if _, ok := static(e.inputs); !ok {
		return nil
	}
	_, err := e.runPlain(1, e.samples(1, 1))
	return err
}

// samples are random inputs: numbers below 1, and for whole numbers 0 and 1, which are
// indices in every table.
func (e *Engine) samples(rows int, seed uint64) []tensor.Tensor {
	rng := rand.New(rand.NewPCG(seed, 1))
	var all []tensor.Tensor
	for _, info := range e.inputs {
		shape, _ := shapeOf(info, rows)
		n, _ := tensor.Elements(shape) // openBuffers has checked it.
		t := tensor.Tensor{Name: info.Name, Type: info.Type, Shape: shape, Data: make([]byte, int(n)*info.Type.Size())}
		fill(t, rng)
		all = append(all, t)
	}
	return all
}

// capture makes a graph of each bucket. If that is not possible, runs are plain, and whyNot
// has the reason.
func (e *Engine) capture() error {
	if e.whyNot = e.uncapturable(); e.whyNot != "" {
		return nil
	}
	// The largest goes first, so that the arena grows only once.
	want := map[int][]tensor.Tensor{}
	for n := len(e.buckets) - 1; n >= 0; n-- {
		rows := e.buckets[n]
		var err error
		// The first of the two runs loads kernels and allocates memory.
		for range 2 {
			if want[rows], err = e.runPlain(rows, e.samples(rows, 2)); err != nil {
				return fmt.Errorf("a batch of %d: %w", rows, err)
			}
		}
		// The graph must not remember these inputs.
		if _, err = e.runPlain(rows, e.samples(rows, 3)); err != nil {
			return fmt.Errorf("a batch of %d: %w", rows, err)
		}
		var nodes C.size_t
		if err := failed(C.batch_capture(e.session, e.batches[rows].c, &nodes)); err != nil {
			e.plain(fmt.Sprintf("a batch of %d cannot be captured: %v", rows, err))
			return nil
		}
	}
	for rows, outputs := range want {
		got, err := e.run(e.batches[rows], rows, e.samples(rows, 2))
		if err != nil {
			return fmt.Errorf("the graph of a batch of %d: %w", rows, err)
		}
		for i := range got {
			if d := Difference(got[i], outputs[i]); d > tolerance {
				e.plain(fmt.Sprintf("the graph of a batch of %d answers otherwise: output %q differs by %.2g", rows, got[i].Name, d))
				return nil
			}
		}
	}
	e.graphs = true
	return nil
}

// tolerance of a graph's answers, next to the largest number of the output: kernels may add
// up in any order.
const tolerance = 1e-3

// uncapturable says why no graph is tried.
func (e *Engine) uncapturable() string {
	if e.options.Plain {
		return "the options ask for plain runs"
	}
	if why := e.static(); why != "" {
		return why
	}
	for i, host := range e.onHost {
		if host {
			return fmt.Sprintf("input %q is read on the host", e.inputs[i].Name)
		}
	}
	return ""
}

// plain gives up graphs for a reason.
func (e *Engine) plain(why string) {
	for rows, b := range e.batches {
		e.discard(b)
		delete(e.batches, rows)
	}
	e.whyNot = why
}

// Difference is the largest difference of two tensors, next to the largest number of want. It
// is infinite if they cannot be compared.
func Difference(got, want tensor.Tensor) float64 {
	size := want.Type.Size()
	if len(got.Data) != len(want.Data) || got.Type != want.Type || size == 0 {
		return math.Inf(1)
	}
	if bytes.Equal(got.Data, want.Data) {
		return 0
	}
	var most, scale float64
	for at := 0; at+size <= len(want.Data); at += size {
		a, b := want.Type.Number(got.Data[at:]), want.Type.Number(want.Data[at:])
		switch {
		case math.IsNaN(a) && math.IsNaN(b) || a == b:
		case math.IsNaN(a) || math.IsNaN(b):
			return math.Inf(1)
		default:
			most = max(most, math.Abs(a-b))
		}
		if !math.IsNaN(b) {
			scale = max(scale, math.Abs(b))
		}
	}
	if scale == 0 || math.IsInf(scale, 1) {
		return most
	}
	return most / scale
}

// fill writes random elements.
func fill(t tensor.Tensor, rng *rand.Rand) {
	size := t.Type.Size()
	for at := 0; at+size <= len(t.Data); at += size {
		element := t.Data[at : at+size]
		switch t.Type {
		case tensor.FP32:
			bits := math.Float32bits(rng.Float32())
			for i := range element {
				element[i] = byte(bits >> (8 * i))
			}
		case tensor.FP64:
			bits := math.Float64bits(rng.Float64())
			for i := range element {
				element[i] = byte(bits >> (8 * i))
			}
		case tensor.FP16:
			// Below 1: an exponent of at most 14.
			element[0], element[1] = byte(rng.Uint32()), byte(0x30+rng.UintN(8))
		default:
			element[0] = byte(rng.UintN(2))
		}
	}
}
