package instances

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/python"
)

// beside returns the engine that runs the model in a process beside the instance; false
// if the instance runs the model itself.
func (f *Flags) beside() (engine.Kind, bool) {
	if f.Prepared != "" {
		return engines.Prepared(f.Prepared)
	}
	return engines.Of(f.Model), engines.IsManifest(f.Model)
}

// loadBeside starts the process that runs the model, and runs the model once if the engine
// asks for it. A bundle that was not prepared is prepared, or used in place.
func (f *Flags) loadBeside(ctx context.Context, kind engine.Kind, logger zerolog.Logger) (instance.Engine, instance.Startup, error) {
	o := engine.Options{Threads: f.Threads, MaxBatch: f.MaxBatch, Warm: f.warm, Memory: f.EngineMemory(), Library: f.Library, Logger: logger}
	if gpu.Shared(os.Getenv) {
		o.Warm = "" // A process that is warm has no GPU.
	}
	switch {
	case kind.TakesDevice:
		o.CUDA = f.onGPU()
	case f.Device != "" && f.Device != automatic:
		return nil, instance.Startup{}, fmt.Errorf("--device is %s: it is for ONNX models only; leave it out, as a model in Python or a model server chooses its device itself", f.Device)
	}
	if f.trial {
		o.Timeout = profile.TrialTimeout
	}
	opened, err := f.startBeside(ctx, kind, o)
	if err != nil {
		return nil, instance.Startup{}, err
	}
	startup := instance.Startup{Library: opened.Library, Load: opened.Load}
	if opened.First == engine.NoRun {
		return opened.Running, startup, nil
	}
	began := time.Now()
	if _, err := opened.Run(ctx, 1, python.Sample(opened.Inputs(), 1, 1)); err != nil {
		if opened.First == engine.StrictRun {
			opened.Close()
			return nil, instance.Startup{}, fmt.Errorf("the model's first run: %w", err)
		}
		logger.Warn().Err(err).Msg("the model's first run, with random inputs, failed")
	}
	startup.FirstRun = time.Since(began)
	return opened.Running, startup, nil
}

// measured makes an instance with --trial measure its model when it is asked to.
func (f *Flags) measured(s *Served) error {
	if !f.trial {
		return nil
	}
	e, ok := s.Closer.(engine.Running)
	if !ok {
		return errors.New("--trial: only a bundle that Python, a model server or a program runs measures its model; leave it out")
	}
	s.Handler = profile.Trial(e, s.Handler)
	return nil
}

func (f *Flags) startBeside(ctx context.Context, kind engine.Kind, o engine.Options) (engine.Opened, error) {
	if f.Prepared != "" {
		return kind.Open(ctx, f.Prepared, o)
	}
	if kind.InPlace != nil {
		return kind.InPlace(ctx, f.Model, o)
	}
	cache, err := profile.PreparedDir("")
	if err != nil {
		return engine.Opened{}, err
	}
	dir, err := kind.Prepare(ctx, f.Model, cache)
	if err != nil {
		return engine.Opened{}, err
	}
	return kind.Open(ctx, dir, o)
}

// EngineMemory returns what an engine may take of the instance's memory in bytes, 0 for no
// limit.
func (f *Flags) EngineMemory() int64 {
	if f.memory <= 0 {
		return 0
	}
	return max(f.memory-ownMemory, f.memory/2)
}

// prepareBeside runs "instance prepare" for a bundle that a process beside the instance
// serves.
func prepareBeside(ctx context.Context, out io.Writer, manifest, cache string, asJSON bool) error {
	kind := engines.Of(manifest)
	dir, err := kind.Prepare(ctx, manifest, cache)
	if err != nil {
		return err
	}
	if !asJSON {
		_, err := fmt.Fprintln(out, dir)
		return err
	}
	described, err := kind.Describe(dir)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(map[string]any{"dir": dir, kind.Name: described})
}
