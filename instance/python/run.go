package python

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// errLost says of a batch that its process was lost with it: it is not to be run
// again.
type errLost struct{ error }

// Lost marks it for package instance.
func (errLost) Lost() bool { return true }

// Unwrap returns why.
func (e errLost) Unwrap() error { return e.error }

// Run computes one batch as a single request.
func (e *Engine) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	outputs, failed, err := e.RunRequests(ctx, []int{rows}, inputs)
	if err != nil {
		return nil, err
	}
	return outputs[0], failed[0]
}

// RunRequests computes one batch of requests with so many rows each, the inputs of
// which are one after another. Each has outputs of its own, or an error; err is one
// of the whole batch.
func (e *Engine) RunRequests(ctx context.Context, rows []int, inputs []tensor.Tensor) (outputs [][]tensor.Tensor, failed []error, err error) {
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	defer func() { <-e.turn }()
	if e.process == nil {
		if err := e.again(ctx); err != nil {
			return nil, nil, errLost{err}
		}
	}
	p := e.process
	answers, err := e.call(p, rows, inputs)
	switch {
	case errors.As(err, new(errLost)):
		e.options.Logger.Error().Err(err).Int("pid", p.pid).Msg("the handler's process is replaced")
		e.process = nil
		e.renew()
		return nil, nil, err
	case err != nil:
		return nil, nil, err
	}
	if limit := e.options.MemoryLimit; limit > 0 && resident(p.pid) > limit-limit/16 {
		e.options.Logger.Warn().Int64("limit", limit).Int64("resident", resident(p.pid)).Msg("the handler's process has nearly all the memory that it may have; it is replaced")
		e.process = nil
		defer e.renew()
		defer p.end()
	}
	return e.collect(p, rows, answers)
}

// call has the process run the batch.
func (e *Engine) call(p *process, rows []int, inputs []tensor.Tensor) ([]answer, error) {
	places, size, err := p.in.put(inputs)
	if err != nil {
		return nil, err
	}
	limit := max(e.options.Timeout, patience*e.slowest)
	if e.runs == 0 {
		limit = max(limit, firstTimeout)
	}
	began := time.Now()
	var r reply
	if err = p.write(call{Rows: rows, Size: size, Inputs: places}); err == nil {
		err = p.read(&r, e.watch(p, began.Add(limit), e.ctx.Err))
	}
	if err != nil {
		return nil, errLost{e.lost(p, err)}
	}
	e.runs++
	e.slowest = max(e.slowest, time.Since(began))
	if r.Error != "" {
		return nil, errors.New(r.Error)
	}
	return r.Answers, nil
}

// Why a process is ended.
var (
	errHangs  = errors.New("did not answer in time and was ended")
	errMemory = errors.New("ran out of memory and was ended")
)

// watch looks after a process that is at work.
func (e *Engine) watch(p *process, until time.Time, also func() error) func() error {
	return func() error {
		if limit := e.options.MemoryLimit; limit > 0 && resident(p.pid) > limit {
			return fmt.Errorf("%w (limit %d MiB)", errMemory, limit>>20)
		}
		if time.Now().After(until) {
			return errHangs
		}
		return also()
	}
}

// lost ends a process that cannot be talked to and says why it cannot.
func (e *Engine) lost(p *process, err error) error {
	gone := errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
	if gone {
		select { // Its end is not far.
		case <-p.ended:
		case <-time.After(time.Second):
		}
	}
	err = errors.Join(fmt.Errorf("the handler's process %w", err), p.end())
	switch {
	case !gone:
		return err
	case outOfMemory() > e.kills:
		e.kills = outOfMemory()
		return errors.New("the handler's process ran out of memory and was killed by the kernel")
	}
	return fmt.Errorf("the handler's process %s", p.how)
}

// renew starts the next process while nobody waits for it.
func (e *Engine) renew() {
	e.replace.Go(func() {
		select {
		case e.turn <- struct{}{}:
		case <-e.ctx.Done():
			return
		}
		defer func() { <-e.turn }()
		if e.process == nil {
			_ = e.again(e.ctx) // Whoever needs the process is told.
		}
	})
}

// again starts a process in the place of one that was lost. The turn is held.
func (e *Engine) again(ctx context.Context) error {
	if e.failed != nil && time.Now().Before(e.retry) {
		return e.failed
	}
	e.failed = e.begin(ctx)
	e.retry = time.Now().Add(restartPause)
	if e.failed != nil {
		e.options.Logger.Error().Err(e.failed).Msg("the handler's process cannot be replaced")
	}
	return e.failed
}

// collect copies the answers' tensors.
func (e *Engine) collect(p *process, rows []int, answers []answer) ([][]tensor.Tensor, []error, error) {
	if !e.loaded.Requests {
		return e.split(p, rows, answers)
	}
	if len(answers) != len(rows) {
		return nil, nil, fmt.Errorf("%d answers for a batch of %d", len(answers), len(rows))
	}
	outputs, failed := make([][]tensor.Tensor, len(rows)), make([]error, len(rows))
	for i, a := range answers {
		if a.Error != "" {
			failed[i] = errors.New(a.Error)
			continue
		}
		outputs[i], failed[i] = e.tensors(p, rows[i], a)
	}
	return outputs, failed, nil
}

// split gives each request its rows of an answer to all.
func (e *Engine) split(p *process, rows []int, answers []answer) ([][]tensor.Tensor, []error, error) {
	total := 0
	for _, n := range rows {
		total += n
	}
	if len(answers) != 1 {
		return nil, nil, fmt.Errorf("%d answers for a batch as one", len(answers))
	}
	whole, err := e.tensors(p, total, answers[0])
	if err != nil {
		return nil, nil, err
	}
	outputs, from := make([][]tensor.Tensor, len(rows)), 0
	for i, n := range rows {
		part := slices.Clone(whole)
		for k, t := range whole {
			size := len(t.Data) / total
			part[k].Data = t.Data[from*size : (from+n)*size]
			part[k].Shape = append([]int64{int64(n)}, t.Shape[1:]...)
		}
		outputs[i] = part
		from += n
	}
	return outputs, make([]error, len(rows)), nil
}

// tensors are an answer's in the model's order.
func (e *Engine) tensors(p *process, rows int, a answer) ([]tensor.Tensor, error) {
	var out []tensor.Tensor
	for _, want := range e.loaded.Outputs {
		at := slices.IndexFunc(a.Outputs, func(o placed) bool { return o.Name == want.Name })
		if at < 0 {
			return nil, fmt.Errorf("the model gave no output %q", want.Name)
		}
		o := a.Outputs[at]
		if o.Type != want.Type || len(o.Shape) == 0 || o.Shape[0] != int64(rows) {
			return nil, fmt.Errorf("the model gave %q as %s with the shape %v for %d rows", o.Name, o.Type, o.Shape, rows)
		}
		t, err := p.out.take(o)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}
