package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Run implements instance.Engine. It sends the batch as one request to the server. If the
// server does not answer in time, or exits, the batch fails and the server is replaced.
func (e *Engine) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	if err := e.servers.Take(ctx); err != nil {
		return nil, err
	}
	defer e.servers.Give()
	s, err := e.servers.Need(ctx)
	if err != nil {
		return nil, err
	}
	outputs, err := e.infer(s, frame.Once(ctx), rows, inputs)
	if !errors.Is(err, ErrNoAnswer) {
		return outputs, err
	}
	err = e.lost(s, err)
	e.options.Logger.Error().Err(err).Msg("the model server is being restarted or reconnected")
	e.servers.Leave()
	e.servers.Renew()
	return nil, engine.Lost{Why: err}
}

// infer sends the batch to the server and waits as long as a batch may take. once: it must not run twice.
func (e *Engine) infer(s *server, once bool, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	// It does not use the batch's own context. A server does not stop computing when
	// nobody waits any more, and the next batch would wait for it without knowing.
	ctx, cancel := context.WithTimeout(e.servers.Life(), e.limit.Next())
	defer cancel()
	if once {
		ctx = frame.WithOnce(ctx)
	}
	began := time.Now()
	outputs, err := s.Infer(ctx, rows, inputs, e.outputs)
	if err == nil {
		e.limit.Answered(time.Since(began))
	}
	return outputs, err
}

// errHangs says that a server did not answer in time.
var errHangs = errors.New("the model server did not answer in time and was stopped")

// lost stops a server that does not answer and says what happened to it.
func (e *Engine) lost(s *server, err error) error {
	if s.child == nil {
		s.Close()
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("the model server at %s did not answer in time", e.options.Prepared.ServerURL)
		}
		return err
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		select { // A server that breaks the connection usually exits.
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
	failed := e.end(s, 0) // Afterwards the server's output is complete.
	if ended {
		why = e.ended(s)
	}
	return errors.Join(why, failed)
}

// guard replaces a server that exits between batches.
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
		if !e.servers.Is(s) { // A batch has found out first and replaced it.
			return
		}
		e.servers.Leave()
		failed := e.end(s, 0)
		e.options.Logger.Error().Err(errors.Join(e.ended(s), failed)).Msg("the model server is being restarted")
		_, _ = e.servers.Need(life) // The next batch gets the error.
	})
}
