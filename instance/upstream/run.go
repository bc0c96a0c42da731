package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Run implements instance.Engine: the batch is one request of the server's. A server
// that does not answer in time, or ends, is replaced, and the batch is lost with it.
func (e *Engine) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	if err := e.servers.Take(ctx); err != nil {
		return nil, err
	}
	defer e.servers.Give()
	s, err := e.servers.Need(ctx)
	if err != nil {
		return nil, err
	}
	outputs, err := e.infer(s, rows, inputs)
	if !errors.Is(err, ErrNoAnswer) {
		return outputs, err
	}
	err = e.lost(s, err)
	e.options.Logger.Error().Err(err).Msg("the model server is started or reached anew")
	e.servers.Leave()
	e.servers.Renew()
	return nil, engine.Lost{Why: err}
}

// infer asks the server, for as long as a batch may take.
func (e *Engine) infer(s *server, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	// Not the batch's own context: a server goes on computing what nobody waits
	// for, and the next batch would have to wait without knowing it.
	ctx, cancel := context.WithTimeout(e.servers.Life(), e.limit.Next())
	defer cancel()
	began := time.Now()
	outputs, err := s.Infer(ctx, rows, inputs, e.outputs)
	if err == nil {
		e.limit.Answered(time.Since(began))
	}
	return outputs, err
}

// errHangs says why a server was ended.
var errHangs = errors.New("the model server did not answer in time and was ended")

// lost ends a server that does not answer and says why it does not.
func (e *Engine) lost(s *server, err error) error {
	if s.child == nil {
		s.Close()
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("the model server at %s did not answer in time", e.options.Prepared.ServerURL)
		}
		return err
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		select { // Its end is not far.
		case <-s.child.Exited():
		case <-time.After(time.Second):
		}
	}
	why := err
	ended := false
	select {
	case <-s.child.Exited():
		ended = true
	default:
		if errors.Is(err, context.DeadlineExceeded) {
			why = errHangs
		}
	}
	failed := e.end(s, 0) // After it, all that the server said is there.
	if ended {
		why = e.ended(s)
	}
	return errors.Join(why, failed)
}

// guard replaces a server that ends while nobody asks it anything.
func (e *Engine) guard(s *server) {
	e.servers.Go(func() {
		life := e.servers.Life()
		select {
		case <-s.child.Exited():
		case <-s.closed:
			return
		case <-life.Done():
			return
		}
		if e.servers.Take(life) != nil {
			return
		}
		defer e.servers.Give()
		if !e.servers.Is(s) { // The one that asked it has seen to it.
			return
		}
		e.servers.Leave()
		failed := e.end(s, 0)
		e.options.Logger.Error().Err(errors.Join(e.ended(s), failed)).Msg("the model server is replaced")
		_, _ = e.servers.Need(life) // Those who need the server are told.
	})
}
