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
	cache, err := preparedDir(o.prepared)
	if err != nil {
		return nil, err
	}
	dir, err := python.Prepare(ctx, manifest, cache)
	if err != nil {
		return nil, err
	}
	prepared, err := python.Read(dir)
	if err != nil {
		return nil, err
	}
	hash, err := python.Hash(manifest)
	if err != nil {
		return nil, err
	}
	r := &pythonRunner{prepared: prepared}
	plan := profiler.Quick(o.maxBatch, 1, o.until, time.Now, r.processorTime)
	plan.Threads = threadsUpTo(o.threads)
	points, err := profiler.Measure(ctx, func(n int) (profiler.Runner, error) {
		r.inputs, r.used = map[int][]tensor.Tensor{}, 0
		r.engine, err = python.Open(ctx, python.Options{Prepared: prepared, Threads: n, Warm: o.warm, Logger: zerolog.Nop(), Timeout: time.Minute})
		return r, err
	}, plan, progressBar(os.Stderr, "measuring "+modelName(manifest)))
	if err != nil {
		return nil, err
	}
	return &measuredModel{Prepared: dir, Profile: &profiler.Profile{
		Model: hash, Engine: engineName(), Machine: report.Machine(),
		Memory: residentPeak() + r.memory, Measurements: points, MeasuredAt: time.Now(),
	}}, nil
}

// pythonRunner executes batches in a handler's process.
type pythonRunner struct {
	prepared python.Prepared
	engine   *python.Engine
	inputs   map[int][]tensor.Tensor
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
