// Package upstream runs models by model servers of others: Triton, TensorFlow
// Serving and MLServer. It starts the server as a process beside the instance, or
// reaches one that runs already, and sits before it: batches are formed as for any
// other model, and each is one request of the server's, in its own protocol. The
// server's batching is set to the instance's size of batch and does not wait.
//
// The server's failures harm no other batch. An error that it answers is its
// batch's error; a server that hangs, takes more memory than it may, or ends is
// replaced. Its output is in the log.
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
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Options say how a model is run.
type Options struct {
	Prepared Prepared
	// MaxBatch is the maximum rows in one execution, Threads how many threads the
	// server's libraries compute on; both at least 1.
	MaxBatch, Threads int
	// MemoryLimit in bytes is what the server may hold, 0 for no limit.
	MemoryLimit int64
	// Timeout is the longest that a batch may take, 8 s if 0: less than what the
	// dispatcher waits. A model that is known to take longer may.
	Timeout time.Duration
	// Log is where the server prints, this process's standard error if nil.
	Log    io.Writer
	Logger zerolog.Logger
}

const (
	// loadTimeout is how long a server may take until its model can be asked.
	loadTimeout = 110 * time.Second
	// reachTimeout is the same for a server that runs already.
	reachTimeout = 5 * time.Second
	// leaving is how long a server may take to end when it is asked to.
	leaving = 2 * time.Second
	// look is how often the memory of a server is looked at.
	look = 250 * time.Millisecond
)

// Engine runs a model by a server. It implements instance.Engine.
type Engine struct {
	options Options
	kind    kind
	inputs  []tensor.Info
	outputs []tensor.Info
	// servers are the one that runs the model and those that take its place.
	servers *engine.Line[server]
	limit   engine.Limit
	started time.Duration
}

// server is one that runs.
type server struct {
	Server
	// child is its process, nil for one that is not ours.
	child *engine.Child
	at    ports
	// over is set when it was ended for its memory.
	over   chan struct{}
	closed chan struct{}
	looks  sync.WaitGroup
}

// Open starts the server, or reaches the one that runs, and asks it for the model's
// signature.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if o.Threads < 1 || o.MaxBatch < 1 {
		return nil, fmt.Errorf("threads and the largest batch must be at least 1, not %d and %d", o.Threads, o.MaxBatch)
	}
	if o.Log == nil {
		o.Log = os.Stderr
	}
	k, err := kindOf(o.Prepared.Engine)
	if err != nil {
		return nil, err
	}
	e := &Engine{options: o, kind: k, limit: engine.Limit{Timeout: o.Timeout}}
	e.servers = engine.NewLine(e.begin, func(err error) {
		o.Logger.Error().Err(err).Msg("the model server cannot be replaced")
	})
	if err := e.servers.Begin(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// Inputs are the model's.
func (e *Engine) Inputs() []tensor.Info { return e.inputs }

// Outputs are the model's.
func (e *Engine) Outputs() []tensor.Info { return e.outputs }

// LoadTime is how long the server took from its start to the model's being ready.
func (e *Engine) LoadTime() time.Duration { return e.started }

// Memory is what the server's processes hold in bytes, 0 for one that is not ours.
func (e *Engine) Memory() (bytes int64) {
	e.ours(func(c *engine.Child) { bytes = c.Memory() })
	return bytes
}

// ProcessorTime is what the server's processes have used, 0 for one that is not ours.
func (e *Engine) ProcessorTime() (used time.Duration) {
	e.ours(func(c *engine.Child) { used = c.ProcessorTime() })
	return used
}

// ours calls f with the server's process, if there is one and it is ours.
func (e *Engine) ours(f func(c *engine.Child)) {
	e.servers.With(func(s *server) {
		if s != nil && s.child != nil {
			f(s.child)
		}
	})
}

// Close ends the server.
func (e *Engine) Close() error {
	return e.servers.Close(func(s *server) error { return e.end(s, leaving) })
}

// end ends a server and clears up after it.
func (e *Engine) end(s *server, patience time.Duration) error {
	s.Close()
	if s.child == nil {
		return nil
	}
	close(s.closed)
	s.looks.Wait()
	err := s.child.End(patience)
	e.kind.clear(s.at)
	return err
}

// watch ends a server that takes more memory than it may.
func (e *Engine) watch(s *server) {
	limit := e.options.MemoryLimit
	if limit == 0 {
		return
	}
	s.looks.Go(func() {
		ticks := time.NewTicker(look)
		defer ticks.Stop()
		for {
			select {
			case <-s.closed:
				return
			case <-ticks.C:
			}
			if s.child.Memory() > limit {
				close(s.over)
				s.child.Kill()
				return
			}
		}
	})
}

// errMemory says why a server was ended.
var errMemory = errors.New("ran out of memory and was ended")
