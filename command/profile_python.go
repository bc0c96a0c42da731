package command

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/report"
)

// measurePython prepares a bundle that Python runs and measures it as a whole.
func (o *profileOptions) measurePython(ctx context.Context, manifest string) (*measuredModel, error) {
	measured, _, err := o.describePython(ctx, manifest)
	return measured, err
}

// signature is what a model takes and gives.
type signature struct{ inputs, outputs []tensor.Info }

// describePython is measurePython that tells the signature, too.
func (o *profileOptions) describePython(ctx context.Context, manifest string) (*measuredModel, signature, error) {
	dir, prepared, err := o.preparePython(ctx, manifest)
	if err != nil {
		return nil, signature{}, err
	}
	hash, err := python.Hash(manifest)
	if err != nil {
		return nil, signature{}, err
	}
	r := &pythonRunner{}
	plan := profiler.Quick(o.maxBatch, 1, o.until, time.Now, r.processorTime)
	plan.Threads = threadsUpTo(o.threads)
	points, err := profiler.Measure(ctx, func(n int) (profiler.Runner, error) {
		r.inputs, r.used = map[int][]tensor.Tensor{}, 0
		if r.engine, err = python.Open(ctx, python.Options{Prepared: prepared, Threads: n, Warm: o.warm, Logger: zerolog.Nop(), Timeout: time.Minute}); err != nil {
			return nil, err
		}
		r.signature = signature{r.engine.Inputs(), r.engine.Outputs()}
		return r, nil
	}, plan, progressBar(os.Stderr, "measuring "+modelName(manifest)))
	if err != nil {
		return nil, signature{}, err
	}
	return &measuredModel{Prepared: dir, Profile: &profiler.Profile{
		Model: hash, Engine: engineName(), Machine: report.Machine(),
		Memory: residentPeak() + r.memory, Measurements: points, MeasuredAt: time.Now(),
	}}, r.signature, nil
}

func (o *profileOptions) preparePython(ctx context.Context, manifest string) (dir string, p python.Prepared, err error) {
	cache, err := preparedDir(o.prepared)
	if err != nil {
		return "", p, err
	}
	if dir, err = python.Prepare(ctx, manifest, cache); err != nil {
		return "", p, err
	}
	p, err = python.Read(dir)
	return dir, p, err
}

// pythonRunner executes batches in a handler's process.
type pythonRunner struct {
	engine    *python.Engine
	signature signature
	inputs    map[int][]tensor.Tensor
	// memory is the most that a process has taken, used processor time that is
	// known of the present one.
	memory int64
	used   time.Duration
}

// Run implements profiler.Runner.
func (r *pythonRunner) Run(ctx context.Context, batch int) error {
	inputs, ok := r.inputs[batch]
	if !ok {
		inputs = python.Sample(r.engine.Inputs(), batch, uint64(batch))
		clear(r.inputs)
		r.inputs[batch] = inputs
	}
	rows := make([]int, batch)
	for i := range rows {
		rows[i] = 1
	}
	_, failed, err := r.engine.RunRequests(ctx, rows, inputs)
	return errors.Join(append(failed, err)...)
}

// Close implements profiler.Runner.
func (r *pythonRunner) Close() error {
	r.memory = max(r.memory, r.engine.Memory())
	return r.engine.Close()
}

// processorTime is what this process and the handler's have used.
func (r *pythonRunner) processorTime() time.Duration {
	if r.engine != nil {
		r.used = max(r.used, r.engine.ProcessorTime())
	}
	return processorTime() + r.used
}
