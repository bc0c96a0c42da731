package cuda

/*
#include "session.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// Prepare makes batches of that many rows fast in an engine with [Options.Single], and copies the
// inputs to the device for [Engine.Repeat]. The batch size before is no longer prepared. A graph
// is not compared with a plain run. Without one, runs are plain and WhyNot has the reason.
func (e *Engine) Prepare(ctx context.Context, rows int, inputs []tensor.Tensor) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.options.Single {
		return errNotSingle
	}
	if err := e.accept(ctx, rows, inputs); err != nil {
		return err
	}
	clear(e.ready)
	l := e.lanes[0]
	restore := keepSignals()
	var whyNot error
	err := l.step(func() (err error) {
		whyNot, err = l.single(rows, inputs)
		return err
	})
	if err = errors.Join(err, restore()); err != nil {
		return err
	}
	if e.capturable {
		e.whyNot = ""
	}
	if whyNot != nil {
		e.whyNot = fmt.Sprintf("a batch of %d: %v", rows, whyNot)
	}
	e.ready[rows] = l
	return nil
}

var errNotSingle = errors.New("the engine prepares its batch sizes by itself")

// single prepares a batch size alone. whyNot says why it has no graph.
func (l *lane) single(rows int, inputs []tensor.Tensor) (whyNot, err error) {
	l.forget()
	b, err := l.prepare(rows, inputs)
	if err != nil {
		return nil, err
	}
	l.batches[rows] = b
	join(unsafe.Slice((*byte)(l.from), l.inBytes), b.in, inputs)
	// The first run loads kernels and allocates memory, the second only memory that fits better.
	for _, first := range []bool{true, false} {
		if _, err := l.compute(b, false, first, false); err != nil {
			return nil, err
		}
	}
	if !l.e.capturable {
		return nil, nil
	}
	whyNot = failed(C.batch_capture(l.e.c, l.c, b.c))
	b.graph = whyNot == nil
	return whyNot, nil
}

// Repeat computes the prepared batch once more on the inputs that are on the device, without
// copies, and returns the time on the device.
func (e *Engine) Repeat(ctx context.Context) (Times, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return Times{}, errClosed
	}
	if err := ctx.Err(); err != nil {
		return Times{}, err
	}
	for rows, l := range e.ready {
		var times Times
		err := l.repeat(rows, &times)
		return times, err
	}
	return Times{}, errNotPrepared
}

var errNotPrepared = errors.New("no batch size is prepared")

func (l *lane) repeat(rows int, times *Times) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.batches[rows]
	if b.graph {
		*times, err = l.compute(b, true, false, false)
		return err
	}
	return l.thread.do(func() error {
		*times, err = l.compute(b, false, false, false)
		return err
	})
}
