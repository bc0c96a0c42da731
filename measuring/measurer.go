package measuring

import (
	"context"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// resolution is the least time in µs that an operator is said to take; less
// cannot be told from nothing beside the cost of a call.
const resolution = 0.05

// Measurer measures operators one by one. Not safe for concurrent use.
type Measurer struct {
	sampler *Sampler
	calls   Calls
	caches  Caches
	sweeper *sweeper
	// engine and machine go into the rows.
	engine, machine string
	budget          Budget
}

// Thorough is the budget of one figure by `profile operators`, which comes back
// to noisy ones; Quick that of a deployment which waits for it.
var (
	Thorough = Budget{Runs: 9, MinTime: 30 * time.Millisecond, MaxTime: 150 * time.Millisecond}
	Quick    = Budget{Runs: 5, MinTime: 10 * time.Millisecond, MaxTime: 60 * time.Millisecond}
)

// NewMeasurer makes one whose rows are of engine and machine; known is as with
// [NewSampler].
func NewMeasurer(ctx context.Context, engine, machine string, known Pace, b Budget) (*Measurer, error) {
	s, err := NewSampler(known)
	if err != nil {
		return nil, err
	}
	calls, err := s.calls(ctx)
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("what a call of the engine costs: %w", err)
	}
	caches := ReadCaches()
	return &Measurer{
		sampler: s, calls: calls, caches: caches, sweeper: newSweeper(max(ownSweep*caches.Own, lastSweep*caches.Last/2)),
		engine: engine, machine: machine, budget: b,
	}, nil
}

const (
	// ownSweep times the own cache's size is read to empty it, lastSweep
	// halves of the last-level cache's size to empty that.
	ownSweep  = 2
	lastSweep = 3
)

// Calls is what a call of the engine costs on this machine.
func (m *Measurer) Calls() Calls { return m.calls }

// Sampler takes the measurer's times.
func (m *Measurer) Sampler() *Sampler { return m.sampler }

// Close frees what the measurer holds.
func (m *Measurer) Close() error { return m.sampler.Close() }

// subject is one operator loaded on a number of threads.
type subject struct {
	*Measurer
	op      *operator.Operator
	threads int
	single  *onnxruntime.Single
	// batch is what is bound, inputs its data.
	batch   int
	inputs  []tensor.Tensor
	outputs int
}

func (m *Measurer) open(op *operator.Operator, threads int) (*subject, error) {
	made, err := op.Model()
	if err != nil {
		return nil, err
	}
	single, err := onnxruntime.OpenSingle(made, op.Features(1).WeightBytes, threads)
	if err != nil {
		return nil, err
	}
	return &subject{Measurer: m, op: op, threads: threads, single: single}, nil
}

// bind makes the inputs of a batch; the seed is the same for every run, so that
// two measurements compare.
func (s *subject) bind(batch int) error {
	if s.batch == batch {
		return nil
	}
	inputs, err := s.op.Samples(batch, uint64(batch))
	if err != nil {
		return err
	}
	outputs := s.op.Results(batch)
	if err := s.single.Bind(inputs, outputs); err != nil {
		return err
	}
	s.batch, s.inputs, s.outputs = batch, inputs, len(outputs)
	return nil
}

// row measures one batch.
func (s *subject) row(ctx context.Context, batch int, cold bool) (database.Row, error) {
	if err := s.bind(batch); err != nil {
		return database.Row{}, err
	}
	budget := s.budget
	budget.Threads = s.threads
	t, err := s.sampler.Take(ctx, budget, func() { s.place(cold) }, s.single.Run)
	if err != nil {
		return database.Row{}, err
	}
	call := s.calls.Of(len(s.inputs), s.outputs)
	if s.op.View {
		call += s.calls.Node // The one that follows it.
	}
	return database.Row{
		Operator: s.op.Key(), Family: s.op.Family(), Features: s.op.Features(batch),
		Batch: batch, Millicores: 1000 * s.threads, Cold: cold,
		Median: max(resolution, t.Typical-call), P95: max(resolution, t.P95-call), CPU: max(resolution, t.CPU-call),
		Spread: t.Spread, Runs: max(1, t.Runs), Noisy: t.Noisy, Engine: s.engine, Machine: s.machine, MeasuredAt: time.Now().UTC(),
	}, nil
}

// place puts the caches into the state in which a model's operator finds them:
// the weights in the last-level cache, or, cold, in memory, where they are after
// a run of a model that is larger than that; what the operator before has
// written in the core's own.
func (s *subject) place(cold bool) {
	size := ownSweep * s.caches.Own
	if cold {
		size = lastSweep * s.caches.Last / 2
	}
	s.sweeper.sweep(size)
	for _, t := range s.inputs {
		s.sweeper.touch(t.Data[:min(int64(len(t.Data)), s.caches.Own)])
	}
}

func (s *subject) close() error { return s.single.Close() }
