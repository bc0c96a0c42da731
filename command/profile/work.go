package profile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/measuring"
	"github.com/faas-infer/faas-infer/profiler/measuring/operators"
	"github.com/faas-infer/faas-infer/profiler/regression"
)

// work measures a set of operators.
type work struct {
	*measuring.Measurer
	file  *operators.File
	tasks []measuring.Task
	began time.Time
	again bool
	// patience is the maximum time for measuring doubtful rows again.
	patience time.Duration
	// rows counts the measured rows.
	rows int
	// kept is the time from which the yardstick's base in the file is known.
	kept time.Time
}

// disturbance is the fraction by which two rows may contradict each other: a batch takes
// longer than a larger one, or warm weights take longer than cold ones.
const disturbance = 0.05

// do measures the rows that the database lacks. Until patience ends, it then measures again
// the rows that were measured on a busy machine.
func (w *work) do(ctx context.Context) error {
	if err := w.quota(ctx); err != nil {
		return err
	}
	if err := w.measureMissing(ctx); err != nil {
		return err
	}
	return w.repeat(ctx)
}

// measureMissing measures the rows that the database lacks.
func (w *work) measureMissing(ctx context.Context) error {
	have := func(key string) bool {
		return slices.ContainsFunc(w.file.Database().Lookup(onnxruntime.Name(), report.Machine(), key), w.fresh)
	}
	if err := w.KeepPace(w.put); err != nil {
		return err
	}
	_, w.kept = w.Sampler().Yardstick()
	if err := w.MeasureReuse(ctx, have, w.put); err != nil {
		return err
	}
	if err := w.MeasureRun(ctx, have, w.put); err != nil {
		return err
	}
	bar := report.ProgressBar(os.Stderr, "measuring operators")
	for i, t := range w.tasks {
		bar(i, len(w.tasks))
		if err := w.task(ctx, t, w.fresh); err != nil {
			return err
		}
	}
	bar(len(w.tasks), len(w.tasks))
	return w.file.Sync()
}

// quota measures how the pauses of a CPU quota affect the caches, if this process may
// make cgroups.
func (w *work) quota(ctx context.Context) error {
	_, known := measuring.KnownRefill(w.file.Database(), onnxruntime.Name(), report.Machine())
	if known && !w.again {
		return nil
	}
	var err error
	base, _ := w.Sampler().Yardstick()
	times := NewModelTimes(base)
	if times.Why != nil {
		fmt.Fprintf(os.Stderr, "the effect of a CPU quota on the caches was not measured: %v\n", times.Why)
		return nil
	}
	for _, share := range []int{1000, measuring.QuotaShare} {
		var t measuring.Sample
		if t, err = times.sweep(ctx, share); err == nil {
			err = w.put(w.SweepRow(t, share))
		}
		if err != nil {
			break
		}
	}
	return errors.Join(err, times.Close())
}

// fresh reports whether a row counts. With --again, only rows of this run count. Rows from
// before the quiet machine's speed was known never count.
func (w *work) fresh(r database.Row) bool {
	return (!w.again || !r.MeasuredAt.Before(w.began)) && !r.MeasuredAt.Before(measuring.KnownSince(w.file.Database(), onnxruntime.Name(), report.Machine()))
}

func (w *work) put(r database.Row) error {
	w.rows++
	return w.file.Append(r)
}

func (w *work) task(ctx context.Context, t measuring.Task, good func(database.Row) bool) error {
	have := func(batch int) (database.Row, bool) { return lookup(w.file.Database(), t, batch, good) }
	if err := w.Measure(ctx, t, have, w.put); err != nil {
		return err
	}
	if _, since := w.Sampler().Yardstick(); !since.Equal(w.kept) {
		w.kept = since
		return w.KeepPace(w.put)
	}
	return nil
}

// doubtful returns a function that reports whether a row should be measured again.
func (w *work) doubtful() func(database.Row) bool {
	type point struct {
		operator          string
		batch, millicores int
		cold              bool
	}
	contradicted := map[point]bool{}
	for _, d := range regression.New(w.file.Database().Rows(onnxruntime.Name(), report.Machine()), 0).Disturbed(disturbance) {
		contradicted[point{d.Operator, d.Batch, d.Millicores, d.Cold}] = true
	}
	return func(r database.Row) bool {
		return r.Noisy || !w.fresh(r) || contradicted[point{r.Operator, r.Batch, r.Millicores, r.Cold}]
	}
}

// count counts the tasks' rows for which is holds.
func (w *work) count(is func(database.Row) bool) int {
	n := 0
	for _, t := range w.tasks {
		n += w.left(t, is)
	}
	return n
}

func (w *work) left(t measuring.Task, is func(database.Row) bool) int {
	n := 0
	for _, b := range t.Batches {
		if _, ok := lookup(w.file.Database(), t, b, is); ok {
			n++
		}
	}
	return n
}

// repeat measures doubtful rows again while the machine is quiet, until there are none or
// patience ends.
func (w *work) repeat(ctx context.Context) error {
	end := time.Now().Add(w.patience)
	doubtful := w.doubtful()
	total := w.count(doubtful)
	bar := report.ProgressBar(os.Stderr, "measuring again what was disturbed")
	for n, before := total, -1; n > 0 && n != before && time.Now().Before(end); n, before = w.count(doubtful), n {
		round := time.Now()
		good := func(r database.Row) bool { return !doubtful(r) || r.MeasuredAt.After(round) && !r.Noisy }
		for _, t := range w.tasks {
			if w.left(t, doubtful) == 0 {
				continue
			}
			if err := w.Sampler().AwaitQuiet(ctx, end); err != nil {
				return err
			}
			if !time.Now().Before(end) {
				break
			}
			bar(max(0, total-w.count(doubtful)), total)
			if err := w.task(ctx, t, good); err != nil {
				return err
			}
		}
		doubtful = w.doubtful()
	}
	bar(total, max(1, total))
	return nil
}

// Remeasure measures all tasks again. Until patience ends, it repeats those that were
// disturbed.
func Remeasure(ctx context.Context, m *measuring.Measurer, file *operators.File, tasks []measuring.Task, patience time.Duration) error {
	w := &work{Measurer: m, file: file, tasks: tasks, began: time.Now(), again: true, patience: patience}
	return w.do(ctx)
}

// lookup finds a task's row for a batch.
func lookup(db *database.Database, t measuring.Task, batch int, have func(database.Row) bool) (database.Row, bool) {
	for _, r := range db.Lookup(onnxruntime.Name(), report.Machine(), t.Operator.Key()) {
		if r.Batch == batch && r.Millicores == 1000*t.Threads && r.Cold == t.Cold && r.GPU == 0 && have(r) {
			return r, true
		}
	}
	return database.Row{}, false
}
