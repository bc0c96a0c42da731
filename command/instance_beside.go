package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/command/beside"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/processing"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/instance/upstream"
)

// isBeside reports whether a process beside the instance is to run the model.
func (f *instanceFlags) isBeside() bool {
	return f.prepared != "" && beside.IsPrepared(f.prepared) || f.prepared == "" && python.IsManifest(f.model)
}

// loadBeside starts the process that runs the model, Python, forked from a warm one if
// there is one, or a model server; or the handler of a model that is run here.
func (f *instanceFlags) loadBeside(ctx context.Context, logger zerolog.Logger) (instance.Engine, instance.Startup, error) {
	if f.isProcessed() {
		return f.loadProcessing(ctx, logger)
	}
	if f.device != "" && f.device != automatic {
		return nil, instance.Startup{}, fmt.Errorf("--device is %s, and is for ONNX models; what Python or a model server runs decides that itself", f.device)
	}
	dir := f.prepared
	if dir == "" {
		cache, err := profile.PreparedDir("")
		if err != nil {
			return nil, instance.Startup{}, err
		}
		if dir, err = beside.Prepare(ctx, f.model, cache); err != nil {
			return nil, instance.Startup{}, err
		}
	}
	o := beside.Options{Threads: f.threads, MaxBatch: f.maxBatch, Warm: f.warm, Memory: f.engineMemory(), Logger: logger}
	if upstream.IsPrepared(dir) {
		return loadUpstream(ctx, dir, o)
	}
	return loadPython(ctx, dir, o)
}

// isProcessed reports whether the model is an ONNX file with a handler.
func (f *instanceFlags) isProcessed() bool {
	return f.prepared != "" && processing.IsPrepared(f.prepared) || f.prepared == "" && processing.IsManifest(f.model)
}

// loadProcessing runs once, as with what is run here alone. What we make up for that may
// be no sense to the handler, so its refusal does not count. A bundle that was not
// prepared, as in an image, is used where it is.
func (f *instanceFlags) loadProcessing(ctx context.Context, logger zerolog.Logger) (instance.Engine, instance.Startup, error) {
	if err := onnxruntime.Load(f.library); err != nil {
		return nil, instance.Startup{}, err
	}
	var p processing.Prepared
	var err error
	if f.prepared == "" {
		p, err = processing.InPlace(f.model)
	} else {
		p, err = processing.Read(f.prepared)
	}
	if err != nil {
		return nil, instance.Startup{}, err
	}
	engine, err := beside.OpenProcessing(ctx, p, beside.Options{Threads: f.threads, Memory: f.engineMemory(), Device: f.computesOn(), Logger: logger})
	if err != nil {
		return nil, instance.Startup{}, err
	}
	began := time.Now()
	if _, err := engine.Run(ctx, 1, python.Sample(engine.Inputs(), 1, 1)); err != nil {
		logger.Warn().Err(err).Msg("the model's first run, with inputs of chance, failed")
	}
	return engine, instance.Startup{Library: onnxruntime.LibraryTime(), Load: engine.LoadTime(), FirstRun: time.Since(began)}, nil
}

// engineMemory is what an engine may take of the instance's memory, 0 for no limit.
func (f *instanceFlags) engineMemory() int64 {
	if f.memory <= 0 {
		return 0
	}
	return max(f.memory-ownMemory, f.memory/2)
}

// loadPython runs what TensorFlow alone runs once: the first run takes longer.
func loadPython(ctx context.Context, dir string, o beside.Options) (instance.Engine, instance.Startup, error) {
	engine, prepared, err := beside.OpenPython(ctx, dir, o)
	if err != nil {
		return nil, instance.Startup{}, err
	}
	startup := instance.Startup{}
	startup.Load, _ = engine.LoadTime()
	if prepared.Handler == "" {
		began := time.Now()
		if _, err := engine.Run(ctx, 1, python.Sample(engine.Inputs(), 1, 1)); err != nil {
			engine.Close()
			return nil, instance.Startup{}, fmt.Errorf("the model's first run: %w", err)
		}
		startup.FirstRun = time.Since(began)
	}
	return engine, startup, nil
}

// loadUpstream asks the server once, since its first answer takes longer. What we make
// up for that may be no sense to the model, so its refusal does not count.
func loadUpstream(ctx context.Context, dir string, o beside.Options) (instance.Engine, instance.Startup, error) {
	engine, err := beside.OpenUpstream(ctx, dir, o)
	if err != nil {
		return nil, instance.Startup{}, err
	}
	began := time.Now()
	if _, err := engine.Run(ctx, 1, python.Sample(engine.Inputs(), 1, 1)); err != nil {
		o.Logger.Warn().Err(err).Msg("the model's first run, with inputs of chance, failed")
	}
	return engine, instance.Startup{Load: engine.LoadTime(), FirstRun: time.Since(began)}, nil
}

// prepareBeside is "instance prepare" of a bundle that a process beside the instance
// runs.
func prepareBeside(ctx context.Context, out io.Writer, manifest, cache string, asJSON bool) error {
	dir, err := beside.Prepare(ctx, manifest, cache)
	if err != nil {
		return err
	}
	if !asJSON {
		_, err := fmt.Fprintln(out, dir)
		return err
	}
	told := struct {
		Dir        string               `json:"dir"`
		Python     *python.Prepared     `json:"python,omitempty"`
		Upstream   *upstream.Prepared   `json:"upstream,omitempty"`
		Processing *processing.Prepared `json:"processing,omitempty"`
	}{Dir: dir}
	switch {
	case upstream.IsPrepared(dir):
		told.Upstream, err = pointer(upstream.Read(dir))
	case processing.IsPrepared(dir):
		told.Processing, err = pointer(processing.Read(dir))
	default:
		told.Python, err = pointer(python.Read(dir))
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(told)
}

func pointer[T any](value T, err error) (*T, error) {
	return &value, err
}
