package cuda

/*
#include "session.h"
*/
import "C"

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// firstRun runs the smallest batch, which loads the kernels. For inputs of unknown sizes it does
// nothing.
func (e *Engine) firstRun(l *lane) error {
	if _, ok := static(e.inputs); !ok || e.options.Single {
		return nil
	}
	rows := e.buckets[0]
	_, _, err := l.plain(rows, rows, e.samples(rows, 1))
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

// complete prepares all batch sizes, while requests come. The first reason why one has no graph
// becomes whyNot. It ends early with ctx.
func (e *Engine) complete(ctx context.Context) {
	defer close(e.completed)
	fail := func(rows int, err error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if ctx.Err() == nil {
			err = examined(e, err)
		}
		if e.whyNot == "" && ctx.Err() == nil {
			e.whyNot = fmt.Sprintf("a batch of %d: %v", rows, err)
		}
	}
	keepCopy(ctx, e)
	switch {
	case e.options.Single:
	case e.apart:
		e.openApart(ctx, fail)
	case e.capturable:
		e.captureAll(ctx, fail)
	}
}

// keepCopy completes the copy that the first session wrote. The sessions after it read its weights.
func keepCopy(ctx context.Context, e *Engine) {
	if e.copy.work == nil {
		return
	}
	err := e.copy.publish() // After an error the next engine tries again.
	var w *weights
	if err == nil && e.apart && len(e.buckets) > 1 {
		w, err = openWeights(ctx, e)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.weights = w
	e.copy.failed(err)
}

// openApart opens a lane for each batch size and captures its run. The largest goes first,
// because most batches are full.
func (e *Engine) openApart(ctx context.Context, fail func(int, error)) {
	free := e.baseline
	for _, rows := range append([]int{e.buckets[0]}, descending(e.buckets)...) {
		if ctx.Err() != nil {
			return
		}
		start := time.Now()
		l, err := e.laneFor(rows)
		if err == nil && e.capturable {
			var want []tensor.Tensor
			if want, err = l.capture(ctx, rows); err == nil {
				err = l.verify(ctx, rows, want)
			}
			l.launch(rows, err == nil)
		}
		if err != nil {
			fail(rows, err)
		}
		if after, _, err := e.deviceMemory(); err == nil {
			e.mu.Lock()
			e.held[rows], free = free-after, after
			e.mu.Unlock()
		}
		e.publish(rows, l, time.Since(start))
	}
}

// descending are the batch sizes above the smallest, the largest first.
func descending(buckets []int) []int {
	all := slices.Clone(buckets[1:])
	slices.Reverse(all)
	return all
}

// laneFor opens the lane of a batch size and runs it once. The one of the smallest is open.
func (e *Engine) laneFor(rows int) (*lane, error) {
	if rows == e.buckets[0] {
		return e.lanes[0], nil
	}
	limit := e.options.Memory
	for _, l := range e.lanes {
		if limit == 0 {
			break
		}
		used, err := l.used()
		if err != nil {
			return nil, err
		}
		if limit -= used; limit <= 0 {
			return nil, fmt.Errorf("the limit of %d bytes is used up", e.options.Memory)
		}
	}
	l := e.newLane(rows, limit)
	restore := keepSignals()
	err := l.thread.do(func() error {
		for _, step := range []func() error{l.openStream, l.provide, l.openSession, l.openBuffers} {
			if err := step(); err != nil {
				return err
			}
		}
		_, _, err := l.plain(rows, rows, e.samples(rows, 1))
		return err
	})
	if err = errors.Join(err, restore()); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// publish lets runs use a lane for a batch size. A lane that could not be opened is nil.
func (e *Engine) publish(rows int, l *lane, took time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stages = append(e.stages, Stage{fmt.Sprintf("batch %d", rows), milliseconds(took)})
	if l == nil {
		return
	}
	if l != e.lanes[0] {
		e.lanes = append(e.lanes, l)
	}
	e.ready[rows] = l
}

// captureAll captures the runs of all batch sizes in one session. Only if all graphs answer as
// plain runs do, after all of them have been captured, requests launch them.
func (e *Engine) captureAll(ctx context.Context, fail func(int, error)) {
	l := e.lanes[0]
	want := map[int][]tensor.Tensor{}
	order := append(descending(e.buckets), e.buckets[0]) // The arena grows only once.
	for _, rows := range order {
		start := time.Now()
		var err error
		if want[rows], err = l.capture(ctx, rows); err != nil {
			fail(rows, err)
			return
		}
		e.publish(rows, nil, time.Since(start))
	}
	for _, rows := range order {
		if err := l.verify(ctx, rows, want[rows]); err != nil {
			fail(rows, err)
			return
		}
	}
	for _, rows := range order {
		l.launch(rows, true)
		e.mu.Lock()
		e.ready[rows] = l
		e.mu.Unlock()
	}
}

// capture makes a graph of a batch size and returns the answer of a plain run for samples(rows,
// 2). Requests run between its steps.
func (l *lane) capture(ctx context.Context, rows int) (want []tensor.Tensor, err error) {
	// The first of the two runs loads kernels and allocates memory. The last has other inputs,
	// because the graph must not remember these.
	for _, seed := range []uint64{2, 2, 3} {
		got, err := l.sample(ctx, false, rows, seed)
		if err != nil {
			return nil, err
		}
		if seed == 2 {
			want = got
		}
	}
	return want, l.next(ctx, func() error { return failed(C.batch_capture(l.e.c, l.c, l.batches[rows].c)) })
}

// verify compares a graph's answer with a plain run's.
func (l *lane) verify(ctx context.Context, rows int, want []tensor.Tensor) error {
	got, err := l.sample(ctx, true, rows, 2)
	if err != nil {
		return fmt.Errorf("its graph: %w", err)
	}
	for i := range got {
		if d := Difference(got[i], want[i]); d > tolerance {
			return fmt.Errorf("its graph answers otherwise: output %q differs by %.2g", got[i].Name, d)
		}
	}
	return nil
}

// sample is one run with random inputs.
func (l *lane) sample(ctx context.Context, graph bool, rows int, seed uint64) (outputs []tensor.Tensor, err error) {
	inputs := l.e.samples(rows, seed)
	err = l.next(ctx, func() (err error) {
		if graph {
			outputs, _, err = l.execute(l.batches[rows], true, rows, inputs)
		} else {
			outputs, _, err = l.plain(rows, rows, inputs)
		}
		return err
	})
	return outputs, err
}

// next is step unless ctx has ended.
func (l *lane) next(ctx context.Context, f func() error) error {
	return l.step(func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return f()
	})
}

// launch makes runs launch the graph of a batch size, or not.
func (l *lane) launch(rows int, graph bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b, ok := l.batches[rows]; ok {
		b.graph = graph
	}
}

// tolerance of a graph's answers, next to the largest number of the output: kernels may add
// up in any order.
const tolerance = 1e-3

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
