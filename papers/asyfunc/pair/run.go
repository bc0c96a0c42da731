package pair

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/instance/shared"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/papers/asyfunc/relay"
)

// batch is one batch on a pair.
type batch struct {
	number uint64
	rows   int
	shares []connected
	inputs []tensor.Tensor
}

// running is a batch that is being computed.
type running struct {
	batch
	*pairing
	memory *relay.Memory
	have   map[string]tensor.Tensor
	lent   []*shared.Part
	// own and phi are the body's times so far, theirs those of each shadow.
	own, phi time.Duration
	theirs   []time.Duration
	failed   []bool
	mine     int // the body's rows of Φ
}

// run computes a batch stage by stage.
func (p *pairing) run(ctx context.Context, b batch) ([]tensor.Tensor, error) {
	r := &running{batch: b, pairing: p, have: make(map[string]tensor.Tensor), mine: b.rows, theirs: make([]time.Duration, len(b.shares)), failed: make([]bool, len(b.shares))}
	near := false
	for _, s := range b.shares {
		r.mine -= s.rows
		near = near || s.rows > 0 && s.peer.Shares()
	}
	if near {
		r.memory = p.shared()
	}
	defer r.free()
	for i, in := range p.body.whole.Inputs() {
		if i >= len(b.inputs) {
			return nil, fmt.Errorf("%d inputs for a model with %d", len(b.inputs), len(p.body.whole.Inputs()))
		}
		r.have[in.Name] = b.inputs[i]
	}
	for i := range p.stages {
		if err := r.stage(ctx, &p.stages[i]); err != nil {
			return nil, fmt.Errorf("stage %d of %d: %w", i+1, len(p.stages), err)
		}
	}
	p.measured(b.rows, r.mine, r.own, r.phi)
	for i, s := range b.shares {
		if s.rows > 0 && !r.failed[i] {
			s.took(r.theirs[i], s.rows)
		}
	}
	return r.outputs()
}

// free gives the lent memory back. Of retired memory nothing is lent again.
func (r *running) free() {
	for _, part := range r.lent {
		r.memory.Free(part)
	}
}

// outputs are the model's, in memory of the caller.
func (r *running) outputs() ([]tensor.Tensor, error) {
	var out []tensor.Tensor
	for _, o := range r.body.whole.Outputs() {
		t, ok := r.have[o.Name]
		if !ok {
			return nil, fmt.Errorf("no segment gives the output %q", o.Name)
		}
		if r.memory != nil {
			if _, lent := r.memory.Where(t.Data); lent {
				t.Data = append([]byte(nil), t.Data...)
			}
		}
		t.Name = o.Name
		out = append(out, t)
	}
	return out, nil
}

// lend is memory for a tensor that a shadow reads or writes, or memory of this process if none is
// shared.
func (r *running) lend(size int) []byte {
	if r.memory != nil && !r.memory.Retired() && size > 0 {
		if part, err := r.memory.Lend(int64(size)); err == nil { // Otherwise memory is short.
			r.lent = append(r.lent, part)
			return part.Data()
		}
	}
	return make([]byte, size)
}

// stage computes a segment for all rows.
func (r *running) stage(ctx context.Context, s *stage) error {
	inputs := make([]tensor.Tensor, len(s.Inputs))
	for i, in := range s.Inputs {
		t, ok := r.have[in.Name]
		if !ok {
			return fmt.Errorf("%q has not been computed", in.Name)
		}
		t.Name = in.As
		inputs[i] = t
	}
	into := make([][]byte, len(s.rowBytes))
	if s.feeds || s.phi >= 0 {
		for i, size := range s.rowBytes {
			into[i] = r.lend(size * r.rows)
		}
	}
	if s.phi >= 0 {
		if err := r.divided(ctx, s, inputs, into); err != nil {
			return err
		}
		return nil
	}
	if err := r.body.turn.take(ctx, s.feeds, r.number); err != nil {
		return err
	}
	defer r.body.turn.give()
	began := time.Now()
	out, err := s.engine.RunInto(ctx, r.rows, inputs, into)
	if err != nil {
		return err
	}
	r.own += time.Since(began)
	for i, o := range s.Outputs {
		r.have[o.Name] = out[i]
	}
	return nil
}

// rowsOf are some rows of tensors.
func rowsOf(all []tensor.Tensor, rows, from, n int) []tensor.Tensor {
	out := make([]tensor.Tensor, len(all))
	for i, t := range all {
		size := len(t.Data) / rows
		t.Shape = append([]int64{int64(n)}, t.Shape[1:]...)
		t.Data = t.Data[from*size : (from+n)*size : (from+n)*size]
		out[i] = t
	}
	return out
}

func bytesOf(into [][]byte, rows, from, n int) [][]byte {
	out := make([][]byte, len(into))
	for i, b := range into {
		size := len(b) / rows
		out[i] = b[from*size : (from+n)*size : (from+n)*size]
	}
	return out
}

// divided computes a run of Φ: the first rows on the body, the others on the shadows. What a shadow
// does not deliver the body computes, too, into memory that no shadow has.
func (r *running) divided(ctx context.Context, s *stage, inputs []tensor.Tensor, into [][]byte) error {
	var jobs sync.WaitGroup
	from := r.mine
	errs := make([]error, len(r.shares))
	for i, share := range r.shares {
		if share.rows > 0 && !r.failed[i] {
			j := relay.Job{
				Segment: s.phi, Rows: share.rows, Memory: r.memory, Into: bytesOf(into, r.rows, from, share.rows),
				Inputs: r.reachable(rowsOf(inputs, r.rows, from, share.rows)),
			}
			jobs.Go(func() { errs[i] = r.job(ctx, i, j) })
		}
		from += share.rows
	}
	var err error
	if r.mine > 0 {
		err = r.compute(ctx, s, rowsOf(inputs, r.rows, 0, r.mine), bytesOf(into, r.rows, 0, r.mine))
	}
	jobs.Wait()
	if err != nil {
		return err
	}
	from = r.mine
	private := false
	for i, share := range r.shares {
		if errs[i] != nil || r.failed[i] && share.rows > 0 {
			if !private {
				into, private = clones(into), true
			}
			r.failed[i] = true
			if err := r.compute(ctx, s, rowsOf(inputs, r.rows, from, share.rows), bytesOf(into, r.rows, from, share.rows)); err != nil {
				return err
			}
		}
		from += share.rows
	}
	for i, o := range s.Outputs {
		shape := o.Shape(r.rows)
		r.have[o.Name] = tensor.Tensor{Name: o.As, Type: o.Type(), Shape: shape, Data: into[i]}
	}
	return nil
}

func clones(into [][]byte) [][]byte {
	out := make([][]byte, len(into))
	for i, b := range into {
		out[i] = append([]byte(nil), b...)
	}
	return out
}

// reachable copies tensors into the shared memory that are not there.
func (r *running) reachable(inputs []tensor.Tensor) []tensor.Tensor {
	if r.memory == nil {
		return inputs
	}
	for i, t := range inputs {
		if _, ok := r.memory.Where(t.Data); !ok {
			inputs[i].Data = r.lend(len(t.Data))
			copy(inputs[i].Data, t.Data)
		}
	}
	return inputs
}

// compute computes rows of Φ on the body.
func (r *running) compute(ctx context.Context, s *stage, inputs []tensor.Tensor, into [][]byte) error {
	if err := r.body.turn.take(ctx, false, r.number); err != nil {
		return err
	}
	defer r.body.turn.give()
	began := time.Now()
	rows := int(inputs[0].Shape[0])
	_, err := s.engine.RunInto(ctx, rows, inputs, into)
	r.phi += time.Since(began)
	r.body.metrics.rows.WithLabelValues("body").Add(float64(rows))
	return err
}

// job has a shadow compute rows. After an error that leaves the shadow's state unknown it retires
// the memory: the shadow may still write there.
func (r *running) job(ctx context.Context, i int, j relay.Job) error {
	share := r.shares[i]
	var expected float64
	j.Within, expected = share.within(j.Rows, r.body.perRow())
	if due, ok := ctx.Deadline(); ok {
		// In the rest of the time the body computes the rows itself.
		j.Within = max(time.Millisecond, min(j.Within, time.Until(due)-time.Duration(j.Rows)*r.body.perRow()))
	}
	began := time.Now()
	answer, err := share.peer.Run(ctx, j)
	share.done(expected)
	if err != nil {
		reason := errorReason
		switch {
		case errors.Is(err, relay.ErrLate):
			reason = lateReason
			share.late(r.body.perRow())
		case errors.Is(err, relay.ErrLost):
			reason = lostReason
		}
		if reason != errorReason && r.memory != nil {
			_ = r.memory.Retire() // What is lent stays mapped.
		}
		r.body.metrics.fallbacks.WithLabelValues(reason).Inc()
		r.body.options.Logger.Warn().Err(err).Int("rows", j.Rows).Str("shadow", share.address.Address).Msg("the body computes a shadow's rows")
		return err
	}
	r.theirs[i] += answer.Computed
	r.body.metrics.rows.WithLabelValues("shadow").Add(float64(j.Rows))
	r.body.metrics.relayed.Observe(max(0, time.Since(began)-answer.Computed-answer.Waited).Seconds())
	return nil
}
