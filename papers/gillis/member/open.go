package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/papers/gillis/forkjoin"
)

// Options say how to open a member's parts.
type Options struct {
	// Threads is the number of computing threads of a part, at least 1.
	Threads int
	// Memory limits what the engines of all parts together allocate, in bytes, 0 for no
	// limit.
	Memory int64
	// Concurrency is the number of batches that a master runs at the same time, 0 for 1.
	Concurrency int
	// Dial connects a master to its workers; nil means net.Dialer's.
	Dial mutual.Dial
}

// Master is the master's engine: its own parts run in this process, the others wherever
// Workers says.
type Master struct {
	*forkjoin.Engine
	// Workers learns the addresses of the other members.
	Workers *forkjoin.Workers
	// Load is how long its own parts took to load.
	Load time.Duration
}

// Master opens member 0. The caller closes it.
func (p *Parts) Master(o Options) (*Master, error) {
	if err := p.has(0); err != nil {
		return nil, err
	}
	m := &Master{Workers: forkjoin.NewWorkers(&p.Plan, o.Concurrency, o.Dial)}
	var open engines
	var rounds []forkjoin.Round
	for i, parts := range p.Rounds {
		var round forkjoin.Round
		for _, part := range parts {
			made := forkjoin.Part{Inputs: part.Inputs, Outputs: part.Outputs}
			if part.Member != 0 {
				made.Worker = m.Workers.Member(part.Member, i+1, part.Outputs)
			} else {
				e, err := open.add(p.options(part, o))
				if err != nil {
					return nil, errors.Join(fmt.Errorf("round %d: %w", i+1, err), open.close())
				}
				made.Worker, made.Own = e, true
			}
			round = append(round, made)
		}
		rounds = append(rounds, round)
	}
	var err error
	if m.Engine, err = forkjoin.New(p.Inputs, p.Outputs, rounds); err != nil {
		return nil, errors.Join(fmt.Errorf("the plan does not fit the model: %w", err), open.close())
	}
	m.Load = open.load
	return m, nil
}

// Close closes the parts and the connections to the workers.
func (m *Master) Close() error { return errors.Join(m.Engine.Close(), m.Workers.Close()) }

// engines are parts that are open.
type engines struct {
	all  []*onnxruntime.Engine
	load time.Duration
}

func (e *engines) add(o onnxruntime.Options) (*onnxruntime.Engine, error) {
	opened, err := onnxruntime.Open(o)
	if err != nil {
		return nil, err
	}
	e.all, e.load = append(e.all, opened), e.load+opened.LoadTime()
	return opened, nil
}

func (e *engines) close() error {
	var errs []error
	for _, one := range e.all {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// Worker is a member that computes parts for the master.
type Worker struct {
	plan    string
	member  int
	rounds  []int // of the engines, from 1
	largest []int64
	engines engines
}

// Worker opens a member other than the master. The caller closes it.
func (p *Parts) Worker(member int, o Options) (*Worker, error) {
	if err := p.has(member); err != nil {
		return nil, err
	}
	w := &Worker{plan: forkjoin.PlanName(&p.Plan), member: member}
	for i, parts := range p.Rounds {
		for _, part := range parts {
			if part.Member != member {
				continue
			}
			if _, err := w.engines.add(p.options(part, o)); err != nil {
				return nil, errors.Join(fmt.Errorf("round %d: %w", i+1, err), w.Close())
			}
			w.rounds, w.largest = append(w.rounds, i+1), append(w.largest, rowBytes(part))
		}
	}
	if len(w.rounds) == 0 {
		return nil, fmt.Errorf("member %d computes no part of the plan", member)
	}
	return w, nil
}

// unknown is the size of a row of a tensor whose size is unknown, in bytes.
const unknown = 64 << 20

// rowBytes bounds what a part is sent for each row, in bytes.
func rowBytes(part Part) int64 {
	n := int64(0)
	for _, in := range part.Inputs {
		size := int64(in.Type().Size())
		shape := in.Shape(1)
		if len(in.Region) > 0 {
			shape = in.At(shape).Shape()
		}
		for _, d := range shape {
			size *= d
		}
		if shape == nil {
			size = unknown
		}
		n += size
	}
	return n
}

// Load is how long the parts took to load.
func (w *Worker) Load() time.Duration { return w.engines.load }

// ExpectedRun is how long one row takes in all parts together, 0 if that is unknown.
func (w *Worker) ExpectedRun() (total time.Duration) {
	for _, e := range w.engines.all {
		total += e.ExpectedRun()
	}
	return total
}

// Warm runs each part once, with made-up inputs of one row.
func (w *Worker) Warm(ctx context.Context) (total time.Duration, err error) {
	for i, e := range w.engines.all {
		took, err := e.Warm(ctx, 1)
		if err != nil {
			return total, fmt.Errorf("round %d: %w", w.rounds[i], err)
		}
		total += took
	}
	return total, nil
}

// Close closes the parts.
func (w *Worker) Close() error { return w.engines.close() }
