package profile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler"
)

// measurePython prepares a bundle that Python or a model server runs and measures it
// as a whole.
func (o *Options) measurePython(ctx context.Context, manifest string) (*profiler.Measured, error) {
	measured, _, err := o.Describe(ctx, manifest)
	return measured, err
}

// Signature holds a model's inputs and outputs.
type Signature struct{ Inputs, Outputs []tensor.Info }

// Describe is measurePython that also returns the signature.
func (o *Options) Describe(ctx context.Context, manifest string) (*profiler.Measured, Signature, error) {
	cache, err := PreparedDir(o.Prepared)
	if err != nil {
		return nil, Signature{}, err
	}
	dir, err := engines.Of(manifest).Prepare(ctx, manifest, cache)
	if err != nil {
		return nil, Signature{}, err
	}
	hash, err := engines.Of(manifest).Hash(manifest)
	if err != nil {
		return nil, Signature{}, err
	}
	r := &pythonRunner{shapes: o.Shapes}
	points, err := profiler.Measure(ctx, func(n int) (profiler.Runner, error) {
		r.inputs, r.used = map[int][]tensor.Tensor{}, 0
		engine, err := engines.Open(ctx, dir, engine.Options{Threads: n, MaxBatch: o.MaxBatch, Warm: o.Warm, CUDA: o.onGPU, Logger: zerolog.Nop(), Timeout: time.Minute})
		if err != nil {
			return nil, err
		}
		r.engine = engine
		r.signature = Signature{r.engine.Inputs(), r.engine.Outputs()}
		if r.sample, err = r.shapes.Fill(r.signature.Inputs); err != nil {
			return nil, errors.Join(fmt.Errorf("--shapes: %w", err), engine.Close())
		}
		return r, nil
	}, o.plan(r.processorTime), report.ProgressBar(os.Stderr, "measuring "+SubjectName(manifest)))
	if err != nil {
		return nil, Signature{}, err
	}
	return &profiler.Measured{Prepared: dir, Profile: &profiler.Profile{
		Model: hash, Engine: onnxruntime.Name(), Machine: report.Machine(), Provisional: o.Sketch,
		Memory: residentPeak() + r.memory, Measurements: points, MeasuredAt: time.Now(),
		Payloads: measurePayloads(ctx, Signature{r.sample, r.signature.Outputs}),
	}}, r.signature, nil
}

// pythonRunner executes batches in a process beside this one.
type pythonRunner struct {
	engine    engine.Running
	signature Signature
	// shapes are the sizes of free dimensions, sample the inputs with these.
	shapes tensor.Shapes
	sample []tensor.Info
	inputs map[int][]tensor.Tensor
	// memory is the maximum memory of the processes in bytes, used the last known CPU
	// time of the present one.
	memory int64
	used   time.Duration
}

// Run implements profiler.Runner.
func (r *pythonRunner) Run(ctx context.Context, batch int) error {
	inputs, ok := r.inputs[batch]
	if !ok {
		inputs = python.Sample(r.sample, batch, uint64(batch))
		clear(r.inputs)
		r.inputs[batch] = inputs
	}
	lending, ok := r.engine.(instance.LendingEngine)
	if !ok {
		_, err := r.engine.Run(ctx, batch, inputs)
		return err
	}
	rows := make([]int, batch)
	for i := range rows {
		rows[i] = 1
	}
	_, failed, release, err := lending.RunLent(ctx, rows, inputs) // As an instance runs it.
	release()
	return errors.Join(append(failed, err)...)
}

// Close implements profiler.Runner.
func (r *pythonRunner) Close() error {
	r.memory = max(r.memory, r.engine.Memory())
	return r.engine.Close()
}

// processorTime returns the CPU time of this process and the one beside it.
func (r *pythonRunner) processorTime() time.Duration {
	if r.engine != nil {
		r.used = max(r.used, r.engine.ProcessorTime())
	}
	return processorTime() + r.used
}
