// Package python runs models in a Python process beside the instance: a handler,
// or TensorFlow alone.
//
// The process has four descriptors of ours: control, a socket with messages (JSON
// after its length); life, a socket whose end is the process's end, by the kernel's
// hand; and two shared memory files, one for the inputs of a batch and one for its
// outputs. A batch is one message each way and one call of the handler; the tensors
// are not in it, they are where it says they are in shared memory.
//
// The handler's failures harm no other batch. An exception is its batch's error;
// a process that hangs, takes more memory than it may, or ends is replaced. What it
// prints is in the log.
package python

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Options say how a model is run.
type Options struct {
	Prepared Prepared
	// Threads that libraries compute on, at least 1.
	Threads int
	// MemoryLimit in bytes is what the process may hold, 0 for no limit.
	MemoryLimit int64
	// Timeout is the longest that a batch may take, 8 s if 0: less than what the
	// dispatcher waits. A model that is known to take longer may.
	Timeout time.Duration
	// Warm is the directory of warm processes' sockets, "" for none.
	Warm string
	// Log is where the process prints, this process's standard error if nil.
	Log    *os.File
	Logger zerolog.Logger
}

// loadTimeout is how long loading may take.
const loadTimeout = 110 * time.Second

// Engine runs a model in a process of its own. It implements instance.LendingEngine.
type Engine struct {
	options Options
	loaded  loaded
	// processes are the one that runs the model and those that take its place.
	processes *engine.Line[process]
	// inputs is the process's memory for what comes, nil without a process.
	inputs  atomic.Pointer[shared]
	limit   engine.Limit
	forked  bool
	started time.Duration
	// kills counts what the kernel has killed for want of memory so far.
	kills uint64
}

// Open starts the process and loads the model.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if o.Threads < 1 {
		return nil, fmt.Errorf("threads must be at least 1, not %d", o.Threads)
	}
	if o.Log == nil {
		o.Log = os.Stderr
	}
	e := &Engine{options: o, limit: engine.Limit{Timeout: o.Timeout}, kills: outOfMemory()}
	e.processes = engine.NewLine(e.begin, func(err error) {
		o.Logger.Error().Err(err).Msg("the handler's process cannot be replaced")
	})
	if err := e.processes.Begin(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// Inputs are the model's.
func (e *Engine) Inputs() []tensor.Info { return e.loaded.Inputs }

// Outputs are the model's.
func (e *Engine) Outputs() []tensor.Info { return e.loaded.Outputs }

// LoadTime is how long the process took from its start to the model's being loaded,
// and whether a warm one was forked for it.
func (e *Engine) LoadTime() (took time.Duration, forked bool) { return e.started, e.forked }

// Process is the process's ID, 0 if there is none now.
func (e *Engine) Process() (pid int) {
	e.processes.With(func(p *process) {
		if p != nil {
			pid = p.pid
		}
	})
	return pid
}

// Memory is what the process holds in bytes.
func (e *Engine) Memory() int64 { return resident(e.Process()) }

// ProcessorTime is what the process has used.
func (e *Engine) ProcessorTime() time.Duration { return processorTime(e.Process()) }

// Close ends the process.
func (e *Engine) Close() error {
	return e.processes.Close(func(p *process) error {
		e.inputs.Store(nil)
		return p.end()
	})
}

// leave forgets the process. The turn is held.
func (e *Engine) leave() {
	e.processes.Leave()
	e.inputs.Store(nil)
}

// begin starts a process and loads the model. The turn is held.
func (e *Engine) begin(ctx context.Context) (*process, error) {
	began := time.Now()
	p, found, err := e.load(ctx)
	if err != nil {
		return nil, err
	}
	if e.loaded.Inputs != nil && !same(e.loaded, found) {
		return nil, errors.Join(errors.New("the model that was loaded anew takes or gives other tensors than before"), p.end())
	}
	e.loaded, e.started = found, time.Since(began)
	e.limit.Fresh()
	e.inputs.Store(p.in)
	e.options.Logger.Info().Bool("forked", e.forked).Int("pid", p.pid).Dur("start_ms", e.started).
		Float64("load_s", found.Load).Msg("the handler's process is ready")
	return p, nil
}

func same(a, b loaded) bool {
	text := func(l loaded) string { return fmt.Sprint(l.Inputs, l.Outputs, l.Requests) }
	return text(a) == text(b)
}

// load gets a process, a forked one if that can be, and has it load the model.
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

// configure has a process load the model; if it cannot, it is ended.
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

// environment is that of the process: ours, and how many threads its libraries use.
func (e *Engine) environment() []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "FAAS_INFER_READY_FD=") {
			env = append(env, entry)
		}
	}
	return append(env, libraries(e.options.Threads)...)
}

// libraries are the variables by which Python's libraries are told how many threads
// to use, and TensorFlow to say no more than is wrong.
func libraries(threads int) []string {
	var env []string
	for _, name := range []string{"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"} {
		env = append(env, fmt.Sprintf("%s=%d", name, threads))
	}
	if os.Getenv("TF_CPP_MIN_LOG_LEVEL") == "" {
		env = append(env, "TF_CPP_MIN_LOG_LEVEL=2")
	}
	return append(env, "TF_NUM_INTEROP_THREADS=1", "CUDA_VISIBLE_DEVICES="+os.Getenv("CUDA_VISIBLE_DEVICES"))
}
