// Package processing runs ONNX models with a program before and after them: the model
// in the instance's own process, and the handler's Pre and Post in a process beside it,
// each once per batch, with all of its rows.
//
// The program is started with a Unix socket as its descriptor 3. It first says what
// requests and answers have, {"inputs": [{"name", "datatype", "shape"}], "outputs": …},
// with shapes of one row and -1 for an open dimension; a list that is missing or empty is
// the model's. Then it is called with {"call": "pre" or "post", "rows", "tensors":
// [{"name", "datatype", "shape", "size"}]} and answers with {"tensors": [{"name",
// "datatype", "size"}]} or {"error"}. These are heads of messages; how a message is
// written tells [the file wire.go]. When the socket is closed, it is to leave. The
// template onnx-go-infer has such a program, which calls a handler in Go.
//
// The handler's failures harm no other batch. An exception is its batch's error; a
// process that hangs or ends is replaced. Its output is in the log.
//
// [the file wire.go]: https://github.com/faas-infer/faas-infer/blob/main/instance/processing/wire.go
package processing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Options say how a model is run.
type Options struct {
	Prepared Prepared
	// Device is what computes the model, as onnxruntime has it.
	Device onnxruntime.Device
	// Threads that the model computes on, and the handler, at least 1.
	Threads int
	// MemoryLimit bounds in bytes what the model's activations take, 0 is no bound. The
	// handler's process is bound by the instance's limit alone.
	MemoryLimit int64
	// Timeout is the longest that Pre or Post may take, 0 for
	// [engine.DefaultTimeout].
	Timeout time.Duration
	// Log is where the handler prints, this process's standard error if nil.
	Log    io.Writer
	Logger zerolog.Logger
}

// Engine runs a model between Pre and Post. It implements instance.Engine.
type Engine struct {
	options Options
	model   *onnxruntime.Engine
	// told is what the first program said.
	told            *signature
	inputs, outputs []tensor.Info
	// programs are the one that is the handler and those that take its place.
	programs *engine.Line[program]
	limit    engine.Limit
	started  time.Duration
}

// Open loads the model and starts the handler; onnxruntime.Load must have succeeded
// before.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if o.Log == nil {
		o.Log = os.Stderr
	}
	model, err := openModel(o)
	if err != nil {
		return nil, err
	}
	if err := checkOpen(model.Inputs()); err != nil {
		return nil, errors.Join(fmt.Errorf("the model's input %w", err), model.Close())
	}
	e := &Engine{options: o, model: model, limit: engine.Limit{Timeout: o.Timeout}}
	e.programs = engine.NewLine(e.begin, func(err error) {
		o.Logger.Error().Err(err).Msg("the handler cannot be replaced")
	})
	if err := e.programs.Begin(ctx); err != nil {
		return nil, errors.Join(err, model.Close())
	}
	return e, nil
}

// openModel loads the model: its prepared form, or where that is not for this host the
// model itself.
func openModel(o Options) (*onnxruntime.Engine, error) {
	how := onnxruntime.Options{
		Model: filepath.Join(o.Prepared.Dir, o.Prepared.Model), Prepared: o.Prepared.Form, Threads: o.Threads, MemoryLimit: o.MemoryLimit,
		Device: o.Device,
	}
	engine, err := onnxruntime.Open(how)
	if errors.Is(err, onnxruntime.ErrNotPrepared) {
		o.Logger.Warn().Err(err).Msg("loading the model itself")
		how.Prepared = ""
		return onnxruntime.Open(how)
	}
	return engine, err
}

// begin starts a program. The turn is held.
func (e *Engine) begin(ctx context.Context) (*program, error) {
	began := time.Now()
	p, err := start(ctx, e.options)
	if err != nil {
		return nil, err
	}
	if err := e.agree(p.signature); err != nil {
		return nil, errors.Join(err, p.end(leaving))
	}
	e.started = time.Since(began)
	e.limit.Fresh()
	e.options.Logger.Info().Int("pid", p.child.PID()).Dur("start_ms", e.started).Msg("the handler is ready")
	return p, nil
}

// agree takes in what a program takes and gives, which stays as the first one told.
func (e *Engine) agree(s signature) error {
	if e.told != nil {
		if fmt.Sprint(*e.told) != fmt.Sprint(s) {
			return errors.New("the handler that was started anew takes or gives other tensors than before")
		}
		return nil
	}
	inputs, outputs := s.Inputs, s.Outputs
	if len(inputs) == 0 {
		inputs = e.model.Inputs()
	}
	if len(outputs) == 0 {
		outputs = e.model.Outputs()
	}
	if err := checkOpen(outputs); err != nil {
		return fmt.Errorf("the handler's output %w", err)
	}
	e.told, e.inputs, e.outputs = &s, inputs, outputs
	return nil
}

// Inputs are what requests have.
func (e *Engine) Inputs() []tensor.Info { return e.inputs }

// Outputs are what answers have.
func (e *Engine) Outputs() []tensor.Info { return e.outputs }

// LoadTime is how long the model took to load and the handler to start.
func (e *Engine) LoadTime() time.Duration { return e.model.LoadTime() + e.started }

// Memory is what the handler's process holds in bytes.
func (e *Engine) Memory() (bytes int64) {
	e.programs.With(func(p *program) {
		if p != nil {
			bytes = p.child.Memory()
		}
	})
	return bytes
}

// ProcessorTime is what the handler's process has used.
func (e *Engine) ProcessorTime() (used time.Duration) {
	e.programs.With(func(p *program) {
		if p != nil {
			used = p.child.ProcessorTime()
		}
	})
	return used
}

// Run implements instance.Engine: Pre, the model and Post, with all rows of the batch. A
// handler that does not answer in time, or ends, is replaced, and the batch is lost with
// it.
func (e *Engine) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	if err := e.programs.Take(ctx); err != nil {
		return nil, err
	}
	defer e.programs.Give()
	p, err := e.programs.Need(ctx)
	if err != nil {
		return nil, err
	}
	given, err := e.call(p, pre, rows, inputs, e.model.Inputs())
	if err != nil {
		return nil, err
	}
	computed, err := e.model.Run(ctx, rows, given)
	if err != nil {
		return nil, err
	}
	return e.call(p, post, rows, computed, e.outputs)
}

// call has the handler do one of the two. The turn is held.
func (e *Engine) call(p *program, call string, rows int, given []tensor.Tensor, wanted []tensor.Info) ([]tensor.Tensor, error) {
	began := time.Now()
	out, err := p.ask(call, rows, given, wanted, began.Add(e.limit.Next()))
	if err == nil || errors.As(err, new(errAnswer)) {
		e.limit.Answered(time.Since(began))
		return out, err
	}
	err = p.lost(err)
	e.options.Logger.Error().Err(err).Int("pid", p.child.PID()).Msg("the handler is replaced")
	e.programs.Leave()
	e.programs.Renew()
	return nil, engine.Lost{Why: err}
}

// Close ends the handler and frees the model.
func (e *Engine) Close() error {
	err := e.programs.Close(func(p *program) error { return p.end(leaving) })
	return errors.Join(err, e.model.Close())
}
