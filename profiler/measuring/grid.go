package measuring

import (
	"context"
	"fmt"

	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// straight is the maximum relative distance of a time from the line through its
// neighbours. Within it no batch between them is measured.
const straight = 0.05

// Task is one operator to measure on a number of threads.
type Task struct {
	Operator *operator.Operator
	Threads  int
	// Batches are ascending; the first and the last are always measured.
	Batches []int
	// Cold is true to measure with the data in memory, not in the last-level cache.
	Cold bool
}

// Measure measures the batches of a task that the database lacks. have returns the row
// of a batch if it exists; put stores a new one.
//
// Between two measured batches Measure measures the middle one, and goes on with both
// halves only if the middle is off their line. Time is nearly linear in b except where a
// kernel changes, so it measures about three of six batches (BATCH §III-A does the same
// for whole models).
func (m *Measurer) Measure(ctx context.Context, t Task, have func(batch int) (database.Row, bool), put func(database.Row) error) (err error) {
	g := &grid{Measurer: m, task: t, have: have, put: put}
	defer func() {
		if g.subject != nil {
			if closeErr := g.subject.close(); err == nil {
				err = closeErr
			}
		}
	}()
	last := len(t.Batches) - 1
	low, err := g.at(ctx, 0)
	if err != nil {
		return err
	}
	high, err := g.at(ctx, last)
	if err != nil {
		return err
	}
	return g.between(ctx, 0, last, low, high)
}

type grid struct {
	*Measurer
	task    Task
	have    func(int) (database.Row, bool)
	put     func(database.Row) error
	subject *subject
}

// at is the row of the i-th batch. It measures the batch if there is no row.
func (g *grid) at(ctx context.Context, i int) (database.Row, error) {
	batch := g.task.Batches[i]
	if r, ok := g.have(batch); ok {
		return r, nil
	}
	if g.subject == nil {
		s, err := g.open(g.task.Operator, g.task.Threads)
		if err != nil {
			return database.Row{}, fmt.Errorf("%s: %w", g.task.Operator.Type, err)
		}
		g.subject = s
	}
	r, err := g.subject.row(ctx, batch, g.task.Cold)
	if err != nil {
		return database.Row{}, fmt.Errorf("%s at a batch of %d: %w", g.task.Operator.Type, batch, err)
	}
	return r, g.put(r)
}

func (g *grid) between(ctx context.Context, i, j int, low, high database.Row) error {
	if j-i < 2 {
		return nil
	}
	at := (i + j) / 2
	middle, err := g.at(ctx, at)
	if err != nil || onLine(low, middle, high) {
		return err
	}
	if err := g.between(ctx, i, at, low, middle); err != nil {
		return err
	}
	return g.between(ctx, at, j, middle, high)
}
