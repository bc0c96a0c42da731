// Package upstream runs models on third-party model servers: Triton, TensorFlow Serving
// and MLServer. It starts a server as a process beside the instance, or connects to one
// that already runs. It does not form batches: the dispatcher does, as for any other
// model. Begin with [Engine.Run].
//
// Each batch is one request to the server, in the server's own protocol. The server's own
// batching is set to the instance's batch size and never waits. A failure of the server
// harms no other batch. An error response is the error of its batch. A server that hangs,
// exceeds its memory limit or exits is replaced. Its output goes to the log.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Options say how to run a model.
type Options struct {
	Prepared Prepared
	// MaxBatch is the maximum number of rows in one execution. Threads is the number of
	// threads that the server's libraries compute on. Both are at least 1.
	MaxBatch, Threads int
	// MemoryLimit is the limit of the server's memory in bytes, 0 for no limit.
	MemoryLimit int64
	// Timeout is the maximum time of a batch, 0 for [engine.DefaultTimeout]. Slow models
	// get more: see [engine.Limit].
	Timeout time.Duration
	// Log receives the server's output. If nil, that is this process's standard error.
	Log    io.Writer
	Logger zerolog.Logger
}

const (
	// loadTimeout is the maximum time from a server's start until its model is ready.
	loadTimeout = 110 * time.Second
	// reachTimeout is the maximum time to connect to a server that already runs.
	reachTimeout = 5 * time.Second
	// stopTimeout is how long a server may take to exit when it is asked to.
	stopTimeout = 2 * time.Second
	// memoryPeriod is the time between two measurements of a server's memory.
	memoryPeriod = 250 * time.Millisecond
)

// Engine runs a model on a model server. It implements instance.Engine.
type Engine struct {
	options Options
	kind    kind
	inputs  []tensor.Info
	outputs []tensor.Info
	// servers holds the server that runs the model, and replaces it.
	servers *engine.Line[server]
	limit   engine.Limit
	started time.Duration
}

// server is a running model server.
type server struct {
	Server
	// child is its process, nil if the instance did not start it.
	child *engine.Child
	at    ports
	// overLimit is closed when the server is killed at its memory limit.
	overLimit chan struct{}
	closed    chan struct{}
	watchers  sync.WaitGroup
}

// Open starts the server, or connects to the running one, and reads the model's
// signature.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if o.Threads < 1 || o.MaxBatch < 1 {
		return nil, fmt.Errorf("threads is %d and the maximum batch is %d; both must be at least 1", o.Threads, o.MaxBatch)
	}
	if o.Log == nil {
		o.Log = engine.Log(os.Stderr)
	}
	k, err := kindOf(o.Prepared.Engine)
	if err != nil {
		return nil, err
	}
	e := &Engine{options: o, kind: k, limit: engine.Limit{Timeout: o.Timeout}}
	e.servers = engine.NewLine(e.begin, func(err error) {
		o.Logger.Error().Err(err).Msg("the model server cannot be restarted")
	})
	if err := e.servers.Begin(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// Inputs describes the model's inputs.
func (e *Engine) Inputs() []tensor.Info { return e.inputs }

// Outputs describes the model's outputs.
func (e *Engine) Outputs() []tensor.Info { return e.outputs }

// Platform implements engine.Running.
func (e *Engine) Platform() string {
	if e.options.Prepared.Engine == bundle.EngineTensorFlowServing {
		return "tensorflow_savedmodel"
	}
	return e.options.Prepared.Engine
}

// LoadTime returns the time from the server's start until the model was ready.
func (e *Engine) LoadTime() time.Duration { return e.started }

// Memory returns the memory of the server's processes in bytes, 0 if the instance did not
// start the server.
func (e *Engine) Memory() (bytes int64) {
	e.withChild(func(c *engine.Child) { bytes = c.Memory() })
	return bytes
}

// ProcessorTime returns the CPU time that the server's processes have used, 0 if the
// instance did not start the server.
func (e *Engine) ProcessorTime() (used time.Duration) {
	e.withChild(func(c *engine.Child) { used = c.ProcessorTime() })
	return used
}

// withChild calls f with the server's process, if the instance started one.
func (e *Engine) withChild(f func(c *engine.Child)) {
	e.servers.With(func(s *server) {
		if s != nil && s.child != nil {
			f(s.child)
		}
	})
}

// Close stops the server.
func (e *Engine) Close() error {
	return e.servers.Close(func(s *server) error { return e.end(s, stopTimeout) })
}

// end stops a server and cleans up after it. patience is how long the server may take to
// exit before it is killed.
func (e *Engine) end(s *server, patience time.Duration) error {
	s.Close()
	if s.child == nil {
		return nil
	}
	close(s.closed)
	s.watchers.Wait()
	err := s.child.End(patience)
	e.kind.clear(s.at)
	return err
}

// watch kills a server that exceeds its memory limit.
func (e *Engine) watch(s *server) {
	limit := e.options.MemoryLimit
	if limit == 0 {
		return
	}
	s.watchers.Go(func() {
		ticks := time.Tick(memoryPeriod)
		for {
			select {
			case <-s.closed:
				return
			case <-ticks:
			}
			if s.child.Memory() > limit {
				close(s.overLimit)
				s.child.Kill()
				return
			}
		}
	})
}

// errMemory says that a server exceeded its memory limit.
var errMemory = errors.New("ran out of memory and was stopped")
