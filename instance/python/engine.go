// Package python runs models in a Python process beside the instance: with a handler, or
// with TensorFlow alone. Package environment installs the Python packages. Begin with
// [Engine.RunLent].
//
// The process gets four file descriptors. control is a socket for messages, each its
// length and JSON. life is a socket; the kernel kills the process when it closes. Two
// shared memory files hold the inputs and the outputs of a batch. A batch takes one
// message each way and one call of the handler. The messages do not contain the tensors
// but their places in shared memory. A handler that yields gives parts of answers: the process
// sends a message for each step and waits until its parts are read (steps.go).
//
// A failure of the handler harms no other batch. An exception is the error of its batch.
// A process that hangs, exceeds its memory limit or exits is replaced. Its output goes to
// the log.
package python

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/shared"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Options say how to run a model.
type Options struct {
	Prepared Prepared
	// Threads is the number of threads that libraries compute on, at least 1.
	Threads int
	// MemoryLimit is the limit of the process's memory in bytes, 0 for no limit.
	MemoryLimit int64
	// Timeout is the maximum time of a batch, 0 for [engine.DefaultTimeout]. Slow models
	// get more: see [engine.Limit].
	Timeout time.Duration
	// Warm is the directory of the warm processes' sockets, "" for none.
	Warm string
	// Log receives the process's output. If nil, that is this process's standard error.
	Log    *os.File
	Logger zerolog.Logger
}

// loadTimeout is the maximum time to load a model.
const loadTimeout = 110 * time.Second

// Engine runs a model in a process of its own. It implements instance.LendingEngine.
type Engine struct {
	options Options
	loaded  loaded
	// processes holds the process that runs the model, and replaces it.
	processes *engine.Line[process]
	// inputs is the memory shared with the process for inputs, nil without a process.
	inputs  atomic.Pointer[shared.Memory]
	limit   engine.Limit
	forked  bool
	started time.Duration
	// kills is the number of processes that the kernel has killed at the memory limit.
	kills uint64
}

// Open starts the process and loads the model.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if o.Threads < 1 {
		return nil, fmt.Errorf("threads is %d; it must be at least 1", o.Threads)
	}
	if o.Log == nil {
		o.Log = engine.LogFile()
	}
	e := &Engine{options: o, limit: engine.Limit{Timeout: o.Timeout}, kills: outOfMemory()}
	e.processes = engine.NewLine(e.begin, func(err error) {
		o.Logger.Error().Err(err).Msg("the handler's process cannot be restarted")
	})
	if err := e.processes.Begin(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// Inputs describes the model's inputs.
func (e *Engine) Inputs() []tensor.Info { return e.loaded.Inputs }

// Outputs describes the model's outputs.
func (e *Engine) Outputs() []tensor.Info { return e.loaded.Outputs }

// Platform implements engine.Running. A handler is Python's, whatever it calls.
func (e *Engine) Platform() string {
	switch p := e.options.Prepared; {
	case p.Handler != "":
		return "python"
	case filepath.Ext(p.Model) != "":
		return "keras"
	}
	return "tensorflow_savedmodel"
}

// LoadTime returns the time from the process's start until it had loaded the model, and
// whether it was forked from a warm process.
func (e *Engine) LoadTime() (took time.Duration, forked bool) { return e.started, e.forked }

// Process returns the process's ID, 0 if there is none now.
func (e *Engine) Process() (pid int) {
	e.processes.With(func(p *process) {
		if p != nil {
			pid = p.pid
		}
	})
	return pid
}

// Memory returns the process's resident memory in bytes.
func (e *Engine) Memory() int64 { return resident(e.Process()) }

// ProcessorTime returns the CPU time that the process has used.
func (e *Engine) ProcessorTime() time.Duration { return processorTime(e.Process()) }

// Close ends the process.
func (e *Engine) Close() error {
	return e.processes.Close(func(p *process) error {
		e.inputs.Store(nil)
		return p.end()
	})
}

// leave forgets the process. The caller holds the turn.
func (e *Engine) leave() {
	e.processes.Leave()
	e.inputs.Store(nil)
}

// begin starts a process and loads the model. The caller holds the turn.
func (e *Engine) begin(ctx context.Context) (*process, error) {
	began := time.Now()
	p, found, err := e.load(ctx)
	if err != nil {
		return nil, err
	}
	if e.loaded.Inputs != nil && !same(e.loaded, found) {
		return nil, errors.Join(errors.New("the reloaded model has other inputs or outputs than before"), p.end())
	}
	started := time.Since(began)
	if e.loaded.Inputs == nil { // Later ones are the same, and others read it at any time.
		e.loaded, e.started = found, started
	}
	e.limit.Fresh()
	e.inputs.Store(p.in)
	e.options.Logger.Info().Bool("forked", e.forked).Int("pid", p.pid).Dur("start_ms", started).
		Float64("load_s", found.Load).Msg("the handler's process is ready")
	return p, nil
}

func same(a, b loaded) bool {
	text := func(l loaded) string { return fmt.Sprint(l.Inputs, l.Outputs, l.Requests, l.Parts) }
	return text(a) == text(b)
}

// load starts a process and makes it load the model. If it can, it forks a warm process.
func (e *Engine) load(ctx context.Context) (*process, loaded, error) {
	env := e.environment()
	if e.options.Warm != "" {
		p, err := fork(SocketOf(e.options.Warm, e.options.Prepared), e.options.Log, env)
		if err == nil {
			found, err := e.configure(ctx, p)
			if err == nil || !found.Refused {
				e.forked = true
				return p, found, err
			}
			e.options.Logger.Warn().Err(err).Msg("the warm process could not be used")
		} else if !errors.Is(err, os.ErrNotExist) {
			e.options.Logger.Warn().Err(err).Msg("the warm process could not be used")
		}
	}
	p, err := start(e.options.Prepared.Python, e.options.Log, env)
	if err != nil {
		return nil, loaded{}, err
	}
	e.forked = false
	found, err := e.configure(ctx, p)
	return p, found, err
}

// configure makes a process load the model. It stops a process that fails.
func (e *Engine) configure(ctx context.Context, p *process) (loaded, error) {
	o, until := e.options, time.Now().Add(loadTimeout)
	var found loaded
	err := p.write(config{Engine: o.Prepared.Engine, Dir: o.Prepared.Dir, Model: o.Prepared.Model, Handler: o.Prepared.Handler, Threads: o.Threads, Memory: o.MemoryLimit})
	if err == nil {
		err = p.read(&found, e.watch(p, until, func() error { return errors.Join(ctx.Err(), e.processes.Life().Err()) }))
	}
	switch {
	case err != nil:
		err = e.lost(p, err)
	case found.Error != "":
		err = errors.Join(errors.New(found.Error), p.end())
	}
	if err != nil {
		return found, fmt.Errorf("load the model: %w", err)
	}
	return found, nil
}

// environment returns the process's environment variables: this process's, and those of
// libraries.
func (e *Engine) environment() []string {
	return append(engine.Environment(), libraries(e.options.Threads)...)
}

// libraries returns the environment variables that set the number of threads of Python's
// libraries, limit TensorFlow's log to errors, and say which GPU they see: that of this process.
func libraries(threads int) []string {
	var env []string
	for _, name := range []string{"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"} {
		env = append(env, fmt.Sprintf("%s=%d", name, threads))
	}
	if os.Getenv("TF_CPP_MIN_LOG_LEVEL") == "" {
		env = append(env, "TF_CPP_MIN_LOG_LEVEL=2")
	}
	devices := os.Getenv("CUDA_VISIBLE_DEVICES")
	if devices != "" { // By default TensorFlow and JAX take nearly all memory of a GPU at their start.
		for name, value := range map[string]string{"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"} {
			if os.Getenv(name) == "" {
				env = append(env, name+"="+value)
			}
		}
	}
	return append(env, "TF_NUM_INTEROP_THREADS=1", "CUDA_VISIBLE_DEVICES="+devices, engine.NoTelemetry)
}
