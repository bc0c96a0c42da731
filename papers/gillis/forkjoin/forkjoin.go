// Package forkjoin is the master of a model that is cut over several instances (Gillis,
// ICDCS 2021 §III-B): an [instance.Engine] that runs a plan's rounds. In each round it sends
// every worker the regions of the tensors that the worker's part needs, computes a part of
// its own meanwhile if the plan says so, and puts the answers together. It does not know who
// the workers are or where: a [Worker] may be an engine in this process or an instance
// elsewhere.
//
// Begin with [New] and [Engine.Run]; [Writer] makes what a worker loads. [Workers] says where
// the workers in other processes are. Package member makes masters and workers of these.
package forkjoin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptrace"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Worker computes one part of a model, as [instance.Engine] does: the outputs belong to the
// caller, the inputs' data are read before Run returns.
type Worker interface {
	Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error)
}

// Part is one part of a round.
type Part struct {
	// Inputs and Outputs are the part's, in the order in which the worker takes and gives
	// them ([cut.Part.Inputs]).
	Inputs, Outputs []cut.Tensor
	Worker          Worker
	// Own is the master's own part: it is computed while the workers compute theirs.
	Own bool
}

// Round is the parts that run at the same time.
type Round []Part

// Engine runs the rounds. It is safe for concurrent use as far as its workers are. Of its own
// parts it computes one at a time.
type Engine struct {
	inputs, outputs []tensor.Info
	rounds          []Round
	// turn holds one element while an own part is computed.
	turn    chan struct{}
	metrics *metrics
	// last is the last round that reads a tensor, by name.
	last map[string]int
}

// New makes the master of a model with these inputs and outputs. The error names a tensor
// that a round needs and none before it gives.
func New(inputs, outputs []tensor.Info, rounds []Round) (*Engine, error) {
	e := &Engine{inputs: inputs, outputs: outputs, rounds: rounds, last: make(map[string]int), turn: make(chan struct{}, 1), metrics: newMetrics()}
	given := make(map[string]bool)
	for _, in := range inputs {
		given[in.Name] = true
	}
	for i, r := range rounds {
		for _, p := range r {
			for _, in := range p.Inputs {
				if !given[in.Name] {
					return nil, fmt.Errorf("round %d needs %q, which no round before it gives", i+1, in.Name)
				}
				e.last[in.Name] = i
			}
		}
		for _, p := range r {
			for _, out := range p.Outputs {
				given[out.Name] = true
			}
		}
	}
	for _, out := range outputs {
		if !given[out.Name] {
			return nil, fmt.Errorf("no round gives the output %q", out.Name)
		}
		e.last[out.Name] = len(rounds)
	}
	return e, nil
}

// Inputs implements [instance.Engine].
func (e *Engine) Inputs() []tensor.Info { return e.inputs }

// Outputs implements [instance.Engine].
func (e *Engine) Outputs() []tensor.Info { return e.outputs }

// Distributed implements [instance.DistributedEngine].
func (e *Engine) Distributed() {}

// Alive returns an error if a worker in another process does not answer.
func (e *Engine) Alive(context.Context) error {
	asked := map[*Workers]bool{}
	for _, r := range e.rounds {
		for _, p := range r {
			m, ok := p.Worker.(*Member)
			if !ok || asked[m.workers] {
				continue
			}
			asked[m.workers] = true
			if err := m.workers.Alive(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close closes the workers that can be closed.
func (e *Engine) Close() error {
	var errs []error
	for _, r := range e.rounds {
		for _, p := range r {
			if c, ok := p.Worker.(io.Closer); ok {
				errs = append(errs, c.Close())
			}
		}
	}
	return errors.Join(errs...)
}

// Run implements [instance.Engine]. If a part fails, the others of its round are cancelled,
// and the error names the part.
func (e *Engine) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	if len(inputs) != len(e.inputs) {
		return nil, fmt.Errorf("%d inputs for a model with %d", len(inputs), len(e.inputs))
	}
	have := make(map[string]tensor.Tensor, len(inputs))
	for i, in := range e.inputs {
		have[in.Name] = inputs[i]
	}
	for i := range e.rounds {
		if err := e.round(ctx, i, rows, have); err != nil {
			return nil, fmt.Errorf("round %d of %d: %w", i+1, len(e.rounds), err)
		}
		for name := range have {
			if e.last[name] <= i {
				delete(have, name)
			}
		}
	}
	out := make([]tensor.Tensor, len(e.outputs))
	for i, o := range e.outputs {
		out[i] = have[o.Name]
	}
	return out, nil
}

// round runs round i and adds its outputs to the tensors that the master has.
func (e *Engine) round(ctx context.Context, i, rows int, have map[string]tensor.Tensor) error {
	began := time.Now()
	r := e.rounds[i]
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	joined := r.outputs(rows)
	calls, took := make([]call, len(r)), make([]time.Duration, len(r))
	for i, p := range r {
		calls[i] = call{part: p, rows: rows, joined: joined}
		if err := calls[i].fork(have); err != nil {
			return fmt.Errorf("part %d of %d: %w", i+1, len(r), err)
		}
	}
	var workers, sending sync.WaitGroup
	var failed sync.Once
	var err error
	fail := func(i int, e error) {
		if e != nil {
			failed.Do(func() { err = fmt.Errorf("part %d of %d: %w", i+1, len(r), e) })
			cancel()
		}
	}
	own := -1
	for i, p := range r {
		if p.Own && own < 0 {
			own = i
			continue
		}
		sending.Add(1)
		sent := sync.OnceFunc(sending.Done)
		workers.Go(func() {
			defer sent()
			fail(i, calls[i].run(whenSent(ctx, p.Worker, sent)))
			took[i] = time.Since(began)
		})
	}
	if own >= 0 {
		// The workers begin when they have their inputs. Sending would only get half of the
		// core during the computation.
		await(&sending, mostSending)
		fail(own, e.own(ctx, &calls[own]))
		e.metrics.part(i, "master", time.Since(began))
	}
	workers.Wait()
	if own < 0 && len(r) > 0 || len(r) > 1 {
		e.metrics.part(i, "workers", slices.Max(took))
	}
	e.metrics.rounds.WithLabelValues(strconv.Itoa(i + 1)).Observe(time.Since(began).Seconds())
	if err != nil {
		return err
	}
	for i := range calls {
		for _, whole := range calls[i].wholes {
			have[whole.Name] = whole
		}
	}
	for name, t := range joined {
		have[name] = t
	}
	return nil
}

// mostSending is how long the master's own part waits until the workers have their inputs: a
// worker that is away should not keep it.
const mostSending = 20 * time.Millisecond

// sender is a worker that is sent its inputs.
type sender interface{ remote() }

// whenSent makes a context in which sent is called when the worker has its inputs. It is
// called at once for a worker in this process.
func whenSent(ctx context.Context, w Worker, sent func()) context.Context {
	if _, ok := w.(sender); !ok {
		sent()
		return ctx
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent() }})
}

// await waits for a group, at most for a time.
func await(group *sync.WaitGroup, most time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
	}()
	timer := time.After(most)
	select {
	case <-done:
	case <-timer:
	}
}

// own waits for the turn and computes an own part.
func (e *Engine) own(ctx context.Context, c *call) error {
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-e.turn }()
	return c.run(ctx)
}

// outputs are the tensors into which the parts' regions are put. A tensor that one part
// gives whole is not among them.
func (r Round) outputs(rows int) map[string]tensor.Tensor {
	joined := make(map[string]tensor.Tensor)
	for _, p := range r {
		for _, out := range p.Outputs {
			if _, ok := joined[out.Name]; ok || out.Region == nil {
				continue
			}
			shape, size := out.Shape(rows), int64(out.Type().Size())
			for _, d := range shape {
				size *= d
			}
			joined[out.Name] = tensor.Tensor{Name: out.Name, Type: out.Type(), Shape: shape, Data: make([]byte, size)}
		}
	}
	return joined
}

// call is one part of one request's round.
type call struct {
	part   Part
	rows   int
	inputs []tensor.Tensor
	// joined are the tensors into which regions are put, wholes those that the part gives
	// whole.
	joined map[string]tensor.Tensor
	wholes []tensor.Tensor
}

// fork takes the part's inputs out of the tensors that the master has. A whole tensor is
// not copied.
func (c *call) fork(have map[string]tensor.Tensor) error {
	for _, in := range c.part.Inputs {
		from := have[in.Name]
		to := tensor.Tensor{Name: in.As, Type: from.Type, Shape: from.Shape, Data: from.Data}
		if r := in.At(from.Shape); !r.Whole(from.Shape) {
			data, err := cut.Take(from.Data, from.Shape, r, from.Type.Size())
			if err != nil {
				return fmt.Errorf("input %q: %w", in.Name, err)
			}
			to.Shape, to.Data = r.Shape(), data
		}
		c.inputs = append(c.inputs, to)
	}
	return nil
}

// run computes the part and puts its outputs where they belong.
func (c *call) run(ctx context.Context) error {
	results, err := c.part.Worker.Run(ctx, c.rows, c.inputs)
	if err != nil {
		return err
	}
	if len(results) != len(c.part.Outputs) {
		return fmt.Errorf("%d outputs of a part with %d", len(results), len(c.part.Outputs))
	}
	for i, out := range c.part.Outputs {
		got := results[i]
		if out.Region == nil {
			if err := check(out, got); err != nil {
				return err
			}
			got.Name = out.Name
			c.wholes = append(c.wholes, got)
			continue
		}
		to := c.joined[out.Name]
		if got.Type != to.Type {
			return fmt.Errorf("output %q is %s, not %s", out.Name, got.Type, to.Type)
		}
		if err := cut.Put(to.Data, to.Shape, out.At(to.Shape), to.Type.Size(), got.Data); err != nil {
			return fmt.Errorf("output %q: %w", out.Name, err)
		}
	}
	return nil
}

// check refuses a whole output that is not what the plan says: later rounds take regions of it.
func check(out cut.Tensor, got tensor.Tensor) error {
	n, err := tensor.Elements(got.Shape)
	if err != nil || got.Type != out.Type() || n*int64(got.Type.Size()) != int64(len(got.Data)) {
		return fmt.Errorf("output %q is %s %v of %d bytes; the plan says %s", out.Name, got.Type, got.Shape, len(got.Data), out.Type())
	}
	return nil
}
