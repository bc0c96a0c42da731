package measuring

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// resolution is the minimum time in µs of an operator. A shorter time is lost in the
// cost of a call.
const resolution = 0.05

// Measurer measures operators one by one. It is not safe for concurrent use.
type Measurer struct {
	sampler *Sampler
	calls   Calls
	caches  Caches
	sweeper *sweeper
	// engine and machine go into the rows.
	engine, machine string
	budget          Budget
}

// Thorough is the budget per figure of `profile operators`, which measures noisy figures
// again. Quick is the budget of a deployment that waits for the result.
var (
	Thorough = Budget{Runs: 7, MinTime: 40 * time.Millisecond, MaxTime: 160 * time.Millisecond}
	Quick    = Budget{Runs: 5, MinTime: 10 * time.Millisecond, MaxTime: 60 * time.Millisecond}
)

// NewMeasurer makes a measurer whose rows have this engine and machine. known is that of
// [NewSampler].
func NewMeasurer(ctx context.Context, engine, machine string, known float64, b Budget) (*Measurer, error) {
	s, err := NewSampler(known)
	if err != nil {
		return nil, err
	}
	calls, err := s.calls(ctx)
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("measure the cost of a call of the engine: %w", err)
	}
	caches := ReadCaches()
	sweeper, err := newSweeper(max(ownSweep*caches.Own, lastSweep*caches.Last/2))
	if err != nil {
		s.Close()
		return nil, err
	}
	return &Measurer{
		sampler: s, calls: calls, caches: caches, sweeper: sweeper,
		engine: engine, machine: machine, budget: b,
	}, nil
}

const (
	// ownSweep is the size of a sweep that empties the own cache, in sizes of that
	// cache. lastSweep is that of the last-level cache, in halves of its size.
	ownSweep  = 2
	lastSweep = 3
)

// Sampler is the measurer's sampler.
func (m *Measurer) Sampler() *Sampler { return m.sampler }

// Close frees the measurer's engine and memory.
func (m *Measurer) Close() error { return errors.Join(m.sampler.Close(), m.sweeper.close()) }

// subject is one operator loaded on a number of threads.
type subject struct {
	*Measurer
	op      *operator.Operator
	threads int
	model   *model.Model
	// single is the loaded model, and copies its number of copies of the operator, 0
	// before it is loaded.
	single *onnxruntime.Single
	copies int
	// batch is the bound batch size, inputs its data.
	batch   int
	inputs  []tensor.Tensor
	outputs int
}

func (m *Measurer) open(op *operator.Operator, threads int) (*subject, error) {
	made, err := op.Model()
	if err != nil {
		return nil, err
	}
	return &subject{Measurer: m, op: op, threads: threads, model: made}, nil
}

// load loads a model with this number of copies.
func (s *subject) load(copies int) error {
	if s.copies == copies {
		return nil
	}
	if err := s.close(); err != nil {
		return err
	}
	m, err := copied(s.model, copies)
	if err != nil {
		return err
	}
	s.single, err = onnxruntime.OpenSingle(m, int64(copies)*s.op.Features(1).WeightBytes, s.threads)
	if err != nil {
		return err
	}
	s.copies, s.batch = copies, 0
	return nil
}

// bind makes and binds the inputs of a batch. The seed depends only on the batch, so two
// measurements are comparable.
func (s *subject) bind(batch int) error {
	if s.batch == batch {
		return nil
	}
	inputs, err := s.op.Samples(batch, uint64(batch))
	if err != nil {
		return err
	}
	outputs := slices.Repeat(s.op.Results(batch), s.copies)
	if err := s.single.Bind(inputs, outputs); err != nil {
		return err
	}
	s.batch, s.inputs, s.outputs = batch, inputs, len(outputs)
	return nil
}

// ready loads the number of copies that suits a batch of this operator, and binds it.
func (s *subject) ready(batch int) error {
	if s.single == nil {
		if err := s.load(1); err != nil {
			return err
		}
	}
	if err := s.bind(batch); err != nil {
		return err
	}
	var least time.Duration
	for i := range 3 { // The first run allocates.
		start := time.Now()
		if err := s.single.Run(); err != nil {
			return err
		}
		if took := time.Since(start); i <= 1 || took < least {
			least = took
		}
	}
	if err := s.load(copiesFor(least/time.Duration(s.copies), s.op.Features(batch).WeightBytes)); err != nil {
		return err
	}
	return s.bind(batch)
}

// row measures one batch.
func (s *subject) row(ctx context.Context, batch int, cold bool) (database.Row, error) {
	if err := s.ready(batch); err != nil {
		return database.Row{}, err
	}
	budget := s.budget
	budget.Threads = s.threads
	var before func()
	if cold || s.copies == 1 {
		before = func() { s.place(cold) }
	}
	t, err := s.sampler.Take(ctx, budget, before, s.single.Run)
	if err != nil {
		return database.Row{}, err
	}
	each := func(t float64) float64 { return max(resolution, s.each(t)) }
	return database.Row{
		Operator: s.op.Key(), Family: s.op.Family(), Features: s.op.Features(batch),
		Batch: batch, Millicores: 1000 * s.threads, Cold: cold,
		Median: each(t.Typical), P95: each(t.P95), CPU: each(t.CPU),
		Spread: t.Spread, Runs: max(1, t.Runs), Noisy: t.Noisy, Engine: s.engine, Machine: s.machine, MeasuredAt: time.Now().UTC(),
	}, nil
}

// each is one operator's part of a call's time, in µs.
func (s *subject) each(t float64) float64 {
	t = (t - s.calls.Of(len(s.inputs), s.outputs)) / float64(s.copies)
	if s.op.View {
		t -= s.calls.Node // A Shape follows the view.
	}
	return t
}

// place puts the caches into the state in which a model's operator finds them. The
// weights are in the last-level cache, or in memory if cold, as in a model larger than
// that cache. The output of the operator before is in the core's own cache.
func (s *subject) place(cold bool) {
	size := ownSweep * s.caches.Own
	if cold {
		size = lastSweep * s.caches.Last / 2 / int64(s.threads)
	}
	s.sweeper.sweepOn(s.threads, size)
	for _, t := range s.inputs {
		s.sweeper.touch(t.Data[:min(int64(len(t.Data)), s.caches.Own)])
	}
}

func (s *subject) close() error {
	if s.single == nil {
		return nil
	}
	err := s.single.Close()
	s.single, s.copies = nil, 0
	return err
}
