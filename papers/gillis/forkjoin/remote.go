package forkjoin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Remote is a worker in another process: an instance that serves a part as a model of its
// own. Tensors go as bytes, with the Open Inference Protocol's binary extension.
type Remote struct {
	client  *upstream.OpenInference
	outputs []tensor.Info
}

// Connect asks an instance at a URL for its model's signature. The instance must be ready.
func Connect(ctx context.Context, base, model string) (*Remote, error) {
	client := upstream.NewOpenInference(base, model)
	_, outputs, err := client.Signature(ctx)
	if err != nil {
		client.Close()
		return nil, err
	}
	return &Remote{client, outputs}, nil
}

// Run implements [Worker].
func (r *Remote) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	return r.client.Infer(ctx, rows, inputs, r.outputs)
}

func (r *Remote) remote() {}
func (m *Member) remote() {}

// Close closes the connections.
func (r *Remote) Close() error {
	r.client.Close()
	return nil
}

// maxWait is how long a batch without a deadline waits for a worker's address.
const maxWait = 30 * time.Second

// Member is the [Worker] of a part that another member of the set computes, wherever
// [Workers] says that it is.
type Member struct {
	workers *Workers
	number  int
	part    string
	outputs []tensor.Info
}

// Member makes the worker of a member's part of a round, counted from 1.
func (w *Workers) Member(number, round int, outputs []cut.Tensor) *Member {
	m := &Member{workers: w, number: number, part: PartName(w.plan, round)}
	for _, out := range outputs {
		m.outputs = append(m.outputs, tensor.Info{Name: out.As, Type: out.Type(), Shape: []int64{-1}})
	}
	return m
}

// Run implements [Worker]. It waits until the worker has an address. A worker that breaks off
// gets the part once more, at its new address or, if it still listens, at the old one, unless it
// may have begun the part and nothing may run twice ([frame.WithOnce]). After a
// second failure the error is an [engine.Lost]. An answer with an error status is an error at
// once, with the worker's text. All ends with ctx.
func (m *Member) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	at, err := m.await(ctx, nil)
	if err != nil {
		return nil, err
	}
	outputs, begun, first := m.infer(ctx, at, rows, inputs)
	switch {
	case !brokeOff(ctx, first):
		return outputs, first
	case begun && frame.Once(ctx):
		return nil, engine.Lost{Why: unrepeated{fmt.Errorf("it broke off, and no request of this function runs twice: %w", first)}}
	}
	m.workers.resent.WithLabelValues(strconv.Itoa(m.number)).Inc()
	if at, err = m.await(ctx, at); err != nil {
		return nil, fmt.Errorf("%w, after it had broken off: %w", err, first)
	}
	outputs, _, err = m.infer(ctx, at, rows, inputs)
	if brokeOff(ctx, err) {
		return nil, engine.Lost{Why: fmt.Errorf("it broke off twice: %w", err)}
	}
	return outputs, err
}

// await waits for the worker's address, for another one than old unless that is nil.
func (m *Member) await(ctx context.Context, old *place) (*place, error) {
	limited := ctx
	if _, due := ctx.Deadline(); !due {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, maxWait)
		defer cancel()
	}
	var at *place
	var err error
	if old == nil {
		at, err = m.workers.first(limited, m.number)
	} else {
		at, err = m.workers.next(limited, m.number, old)
	}
	if err != nil && ctx.Err() == nil {
		err = engine.Lost{Why: err}
	}
	return at, err
}

// unrepeated is the error of a part that may have begun and was not sent again.
type unrepeated struct{ error }

// HTTPStatus is the status of its requests.
func (unrepeated) HTTPStatus() int { return http.StatusBadGateway }

// Unwrap returns why.
func (u unrepeated) Unwrap() error { return u.error }

// infer sends the part to a worker. begun: there was a connection, so that the worker may have begun it.
func (m *Member) infer(ctx context.Context, at *place, rows int, inputs []tensor.Tensor) (outputs []tensor.Tensor, begun bool, err error) {
	var connected atomic.Bool
	end := m.workers.begin(at)
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	outputs, err = upstream.NewPeer(at.over, m.part).Infer(traced, rows, inputs, m.outputs)
	end(cmp.Or(ctx.Err(), err))
	if err != nil {
		return nil, connected.Load(), fmt.Errorf("worker %d at %s: %w", m.number, at.Address.Address, err)
	}
	return outputs, true, nil
}

// brokeOff reports whether a call failed because the worker did, and not because it refused or
// because nobody needs the answer any more.
func brokeOff(ctx context.Context, err error) bool {
	return errors.Is(err, upstream.ErrNoAnswer) && ctx.Err() == nil
}
