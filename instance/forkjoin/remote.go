package forkjoin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/faas-infer/faas-infer/instance/engine"
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
// gets the part once more, at its new address or, if it still listens, at the old one. After a
// second failure the error is an [engine.Lost]. An answer with an error status is an error at
// once, with the worker's text. All ends with ctx.
func (m *Member) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	at, err := m.await(ctx, nil)
	if err != nil {
		return nil, err
	}
	outputs, first := m.infer(ctx, at, rows, inputs)
	if !brokeOff(ctx, first) {
		return outputs, first
	}
	m.workers.resent.WithLabelValues(strconv.Itoa(m.number)).Inc()
	if at, err = m.await(ctx, at); err != nil {
		return nil, fmt.Errorf("%w, after it had broken off: %w", err, first)
	}
	outputs, err = m.infer(ctx, at, rows, inputs)
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

func (m *Member) infer(ctx context.Context, at *place, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	end := m.workers.begin(at)
	outputs, err := upstream.NewPeer(at.over, m.part).Infer(ctx, rows, inputs, m.outputs)
	end(cmp.Or(ctx.Err(), err))
	if err != nil {
		return nil, fmt.Errorf("worker %d at %s: %w", m.number, at.Address.Address, err)
	}
	return outputs, nil
}

// brokeOff reports whether a call failed because the worker did, and not because it refused or
// because nobody needs the answer any more.
func brokeOff(ctx context.Context, err error) bool {
	return errors.Is(err, upstream.ErrNoAnswer) && ctx.Err() == nil
}
