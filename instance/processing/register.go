package processing

import (
	"context"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
)

// Kind returns the engine of ONNX models with a handler that is a program.
func Kind() engine.Kind {
	return engine.Kind{
		Name: "processing", Matches: IsManifest, IsPrepared: IsPrepared, Check: func(_ context.Context, manifest string) error { return Check(manifest) },
		Hash: Hash,
		Prepare: func(_ context.Context, manifest, cache string) (string, error) {
			if err := onnxruntime.Load(""); err != nil {
				return "", err
			}
			return Prepare(manifest, cache)
		},
		Describe: func(dir string) (any, error) { return Read(dir) },
		Open: func(ctx context.Context, dir string, o engine.Options) (engine.Opened, error) {
			p, err := Read(dir)
			if err != nil {
				return engine.Opened{}, err
			}
			return openPrepared(ctx, p, o)
		},
		InPlace: func(ctx context.Context, manifest string, o engine.Options) (engine.Opened, error) {
			p, err := InPlace(manifest)
			if err != nil {
				return engine.Opened{}, err
			}
			return openPrepared(ctx, p, o)
		},
		TakesDevice: true,
	}
}

func openPrepared(ctx context.Context, p Prepared, o engine.Options) (engine.Opened, error) {
	e, err := Open(ctx, Options{
		Prepared: p, CUDA: o.CUDA, Library: o.Library, MaxBatch: o.MaxBatch, Threads: o.Threads, MemoryLimit: o.Memory, Timeout: o.Timeout, Logger: o.Logger,
	})
	if err != nil {
		return engine.Opened{}, err
	}
	return engine.Opened{Running: e, Library: e.library, Load: e.LoadTime(), First: engine.TolerantRun}, nil
}
