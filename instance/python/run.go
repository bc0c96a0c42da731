package python

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Run computes one batch as a single request.
func (e *Engine) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	outputs, failed, err := e.RunRequests(ctx, []int{rows}, inputs)
	if err != nil {
		return nil, err
	}
	return outputs[0], failed[0]
}

// RunLent implements instance.LendingEngine. The outputs are in the memory shared with
// the process and are valid until release is called. release is never nil.
func (e *Engine) RunLent(ctx context.Context, rows []int, inputs []tensor.Tensor) (outputs [][]tensor.Tensor, failed []error, release func(), err error) {
	return e.RunParts(ctx, rows, inputs, nil, nil)
}

// InParts implements instance.PartsEngine: it reports whether the handler yields.
func (e *Engine) InParts() bool { return e.loaded.Parts }

// RunParts implements instance.PartsEngine. If ctx ends, no request gets more parts.
func (e *Engine) RunParts(ctx context.Context, rows []int, inputs []tensor.Tensor, takes []bool,
	take func(request int, part []tensor.Tensor) (more bool)) (outputs [][]tensor.Tensor, failed []error, release func(), err error) {
	if err := e.processes.Take(ctx); err != nil {
		return nil, nil, func() {}, err
	}
	defer e.processes.Give()
	p, err := e.processes.Need(ctx)
	if err != nil {
		return nil, nil, func() {}, err
	}
	steps := steps{ctx: ctx, engine: e, process: p, rows: rows, takes: takes, take: take}
	answers, err := e.call(&steps, inputs)
	switch {
	case errors.As(err, new(engine.Lost)):
		e.options.Logger.Error().Err(err).Int("pid", p.pid).Msg("the handler's process is being restarted")
		e.leave()
		e.processes.Renew()
		return nil, nil, func() {}, err
	case err != nil:
		return nil, nil, func() {}, err
	}
	if limit := e.options.MemoryLimit; limit > 0 && resident(p.pid) > limit-limit/16 {
		e.options.Logger.Warn().Int64("limit", limit).Int64("resident", resident(p.pid)).Msg("the handler's process has nearly reached its memory limit and is being restarted")
		e.leave()
		defer e.processes.Renew()
		defer p.end()
	}
	w, err := newWindow(p.out, answers)
	if err != nil {
		return nil, nil, func() {}, err
	}
	if outputs, failed, err = e.collect(w, steps, answers); err != nil {
		w.release()
		return nil, nil, func() {}, err
	}
	return outputs, failed, w.release, nil
}

// call makes the process run the batch. A handler that yields answers in steps: each gives the next parts to those
// who take them, and the last has the other answers.
func (e *Engine) call(s *steps, inputs []tensor.Tensor) ([]answer, error) {
	p := s.process
	places, size, done, err := put(p.in, inputs)
	if err != nil {
		return nil, err
	}
	defer done()
	started := time.Now()
	began := started // Of this step.
	var r reply
	var message any = call{Rows: s.rows, Size: size, Inputs: places, Taken: p.out.Taken(), Parts: s.takers()}
	for {
		if err = p.write(message); err == nil {
			r, err = p.reply(e.watch(p, began.Add(e.limit.Next()), e.processes.Life().Err))
		}
		if err == nil && r.More {
			message, err = s.next(r.Answers)
			began = time.Now()
		}
		if err != nil {
			return nil, engine.Lost{Why: e.lost(p, err)}
		}
		if !r.More {
			break
		}
	}
	// Another batch may need as long for a whole answer, which is one step.
	e.limit.Answered(time.Since(started))
	switch {
	case r.Error != "" && r.Inputs:
		return nil, inputError{errors.New(r.Error)}
	case r.Error != "":
		return nil, errors.New(r.Error)
	}
	return r.Answers, nil
}

// inputError is the error of a batch that its inputs caused.
type inputError struct{ error }

// HTTPStatus is that of a request that must not be sent again unchanged.
func (inputError) HTTPStatus() int { return http.StatusBadRequest }

// The reasons to stop a process.
var (
	errHangs  = errors.New("did not answer in time and was stopped")
	errMemory = errors.New("ran out of memory and was stopped")
)

// watch returns the check that runs repeatedly while a process works. It fails if the
// process exceeds its memory limit, the deadline until has passed, or also fails.
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

// lost stops a process after a failed exchange and says what happened to it.
func (e *Engine) lost(p *process, err error) error {
	gone := errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
	if gone {
		select { // A process that closes its socket usually exits.
		case <-p.ended:
		case <-time.After(time.Second):
		}
	}
	late := errors.Is(err, errHangs)
	err = errors.Join(fmt.Errorf("the handler's process %w", err), p.end())
	// Under a CPU quota a killed process may take seconds to exit. So a kill at the memory
	// limit counts for a process that was late, too.
	if kills := outOfMemory(); (gone || late) && p.killed && kills > e.kills {
		e.kills = kills
		return errors.New("the handler's process ran out of memory and was killed by the kernel")
	}
	if !gone {
		return err
	}
	return fmt.Errorf("the handler's process %s", p.how)
}

// collect returns each request's outputs or error from the answers.
func (e *Engine) collect(w window, s steps, answers []answer) ([][]tensor.Tensor, []error, error) {
	rows := s.rows
	if !e.loaded.Requests {
		return e.split(w, rows, answers)
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
		if s.takesParts(i) {
			continue
		}
		outputs[i], failed[i] = e.tensors(w, rows[i], a)
	}
	return outputs, failed, nil
}

// split splits the single answer for a batch into each request's rows.
func (e *Engine) split(w window, rows []int, answers []answer) ([][]tensor.Tensor, []error, error) {
	total := 0
	for _, n := range rows {
		total += n
	}
	if len(answers) != 1 {
		return nil, nil, fmt.Errorf("the process returned %d answers for a batch that needs one", len(answers))
	}
	whole, err := e.tensors(w, total, answers[0])
	if err != nil {
		return nil, nil, err
	}
	outputs, err := tensor.Split(whole, rows)
	return outputs, make([]error, len(rows)), err
}

// tensors returns an answer's tensors in the model's order.
func (e *Engine) tensors(w window, rows int, a answer) ([]tensor.Tensor, error) {
	var out []tensor.Tensor
	for _, want := range e.loaded.Outputs {
		at := slices.IndexFunc(a.Outputs, func(o placed) bool { return o.Name == want.Name })
		if at < 0 {
			return nil, fmt.Errorf("the model returned no output %q", want.Name)
		}
		o := a.Outputs[at]
		if o.Type != want.Type || len(o.Shape) == 0 || o.Shape[0] != int64(rows) {
			return nil, fmt.Errorf("the model returned %q as %s with the shape %v for %d rows; its output is %s %v", o.Name, o.Type, o.Shape, rows, want.Type, want.Shape)
		}
		t, err := w.tensor(o)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}
