// Package processing runs ONNX models with a handler before and after them. The model
// runs in the instance's own process. The handler's Pre and Post run in a process beside
// it, each once per batch with all of its rows. The package does not build handlers:
// package bundle finds the program in the bundle. Begin with [Engine.Run].
//
// The program starts with a Unix socket as file descriptor 3. Its first message describes
// the tensors of requests and answers: {"inputs": [{"name", "datatype", "shape"}],
// "outputs": …}. Shapes are those of one row, with -1 for a dynamic dimension. If a list
// is missing or empty, the model's applies. A call is {"call": "pre" or "post", "rows",
// "tensors": [{"name", "datatype", "shape", "size"}]}. Its answer is {"tensors":
// [{"name", "datatype", "size"}]} or {"error"}. These are the heads of messages; [the
// file wire.go] has the format. The program must exit when the socket is closed. The
// template onnx-go-infer has such a program, which calls a handler in Go.
//
// A failure of the handler harms no other batch. An error that it returns is the error of
// its batch. A process that hangs or exits is replaced. Its output goes to the log.
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

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/cuda"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Options say how to run a model.
type Options struct {
	Prepared Prepared
	// CUDA computes the model on the GPU, in batches of at most MaxBatch rows. Library is the
	// path of the ONNX Runtime library, "" for the default one.
	CUDA     bool
	Library  string
	MaxBatch int
	// Threads is the number of threads for the model, and for the handler, at least 1.
	Threads int
	// MemoryLimit limits the memory of the model's activations in bytes, 0 for no limit.
	// Only the instance's own limit applies to the handler's process.
	MemoryLimit int64
	// Timeout is the maximum time of a call of Pre or Post, 0 for
	// [engine.DefaultTimeout].
	Timeout time.Duration
	// Log receives the handler's output. If nil, that is this process's standard error.
	Log    io.Writer
	Logger zerolog.Logger
}

// Engine runs a model between Pre and Post. It implements instance.Engine.
type Engine struct {
	options Options
	model   computer
	// library is how long the engine's library took to load.
	library time.Duration
	// first is the signature that the first program sent, nil before.
	first           *signature
	inputs, outputs []tensor.Info
	// programs holds the handler's process and replaces it.
	programs *engine.Line[program]
	limit    engine.Limit
	started  time.Duration
}

// Platform implements engine.Running.
func (e *Engine) Platform() string { return "onnxruntime_onnx" }

// computer computes the model, on the CPU or the GPU.
type computer interface {
	instance.Engine
	LoadTime() time.Duration
}

// Open loads the model and starts the handler.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if o.Log == nil {
		o.Log = engine.Log(os.Stderr)
	}
	model, library, err := openModel(o)
	if err != nil {
		return nil, err
	}
	if err := checkOpen(model.Inputs()); err != nil {
		return nil, errors.Join(fmt.Errorf("the model's input %w", err), model.Close())
	}
	e := &Engine{options: o, model: model, library: library, limit: engine.Limit{Timeout: o.Timeout}}
	e.programs = engine.NewLine(e.begin, func(err error) {
		o.Logger.Error().Err(err).Msg("the handler cannot be restarted")
	})
	if err := e.programs.Begin(ctx); err != nil {
		return nil, errors.Join(err, model.Close())
	}
	return e, nil
}

// openModel loads the prepared form of the model, or the original model if that form is
// not for this host or the model runs on the GPU. It also returns how long the library took.
func openModel(o Options) (computer, time.Duration, error) {
	file := filepath.Join(o.Prepared.Dir, o.Prepared.Model)
	if o.CUDA {
		engine, err := cuda.Open(cuda.Options{Model: file, Library: o.Library, MaxBatch: max(1, o.MaxBatch)})
		if err != nil {
			return nil, 0, err
		}
		return engine, engine.LibraryTime(), nil
	}
	if err := onnxruntime.Load(o.Library); err != nil {
		return nil, 0, err
	}
	how := onnxruntime.Options{Model: file, Prepared: o.Prepared.Form, Threads: o.Threads, MemoryLimit: o.MemoryLimit}
	engine, err := onnxruntime.Open(how)
	if errors.Is(err, onnxruntime.ErrNotPrepared) {
		o.Logger.Warn().Err(err).Msg("loading the original model instead of the prepared one")
		how.Prepared = ""
		engine, err = onnxruntime.Open(how)
	}
	if err != nil {
		return nil, 0, err
	}
	return engine, onnxruntime.LibraryTime(), nil
}

// begin starts a program and checks its signature. The caller holds the turn.
func (e *Engine) begin(ctx context.Context) (*program, error) {
	began := time.Now()
	p, err := start(ctx, e.options)
	if err != nil {
		return nil, err
	}
	if err := e.agree(p.signature); err != nil {
		return nil, errors.Join(err, p.end(stopTimeout))
	}
	e.started = time.Since(began)
	e.limit.Fresh()
	e.options.Logger.Info().Int("pid", p.child.PID()).Dur("start_ms", e.started).Msg("the handler is ready")
	return p, nil
}

// agree adopts the first program's signature and refuses a later program with another one.
func (e *Engine) agree(s signature) error {
	if e.first != nil {
		if fmt.Sprint(*e.first) != fmt.Sprint(s) {
			return errors.New("the restarted handler has other inputs or outputs than before")
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
	e.first, e.inputs, e.outputs = &s, inputs, outputs
	return nil
}

// Inputs describes the tensors of requests.
func (e *Engine) Inputs() []tensor.Info { return e.inputs }

// Outputs describes the tensors of answers.
func (e *Engine) Outputs() []tensor.Info { return e.outputs }

// LoadTime returns the time to load the model and start the handler.
func (e *Engine) LoadTime() time.Duration { return e.model.LoadTime() + e.started }

// Memory returns the memory of the handler's process in bytes.
func (e *Engine) Memory() (bytes int64) {
	e.programs.With(func(p *program) {
		if p != nil {
			bytes = p.child.Memory()
		}
	})
	return bytes
}

// ProcessorTime returns the CPU time that the handler's process has used.
func (e *Engine) ProcessorTime() (used time.Duration) {
	e.programs.With(func(p *program) {
		if p != nil {
			used = p.child.ProcessorTime()
		}
	})
	return used
}

// Run implements instance.Engine. It runs Pre, the model and Post with all rows of the
// batch. If the handler does not answer in time, or exits, the batch fails and a new
// handler starts.
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

// call calls the handler's Pre or Post. The caller holds the turn.
func (e *Engine) call(p *program, call string, rows int, given []tensor.Tensor, wanted []tensor.Info) ([]tensor.Tensor, error) {
	began := time.Now()
	out, err := p.ask(call, rows, given, wanted, began.Add(e.limit.Next()))
	if err == nil || errors.As(err, new(errAnswer)) {
		e.limit.Answered(time.Since(began))
		return out, err
	}
	err = p.lost(err)
	e.options.Logger.Error().Err(err).Int("pid", p.child.PID()).Msg("the handler is being restarted")
	e.programs.Leave()
	e.programs.Renew()
	return nil, engine.Lost{Why: err}
}

// Failed gets one error if the model's device has failed, after which every batch fails; nil on the CPU.
func (e *Engine) Failed() <-chan error {
	if m, ok := e.model.(interface{ Failed() <-chan error }); ok {
		return m.Failed()
	}
	return nil
}

// Close ends the handler and frees the model.
func (e *Engine) Close() error {
	err := e.programs.Close(func(p *program) error { return p.end(stopTimeout) })
	return errors.Join(err, e.model.Close())
}
