package upstream

import (
	"context"

	"github.com/faas-infer/faas-infer/instance/engine"
)

// Kind returns the engine of models on model servers: Triton, TensorFlow Serving and
// MLServer.
func Kind() engine.Kind {
	return engine.Kind{
		Name: "upstream", Matches: IsManifest, IsPrepared: IsPrepared, Check: func(_ context.Context, manifest string) error { return Check(manifest) },
		Hash: Hash, Prepare: Prepare,
		Describe: func(dir string) (any, error) { return Read(dir) },
		Open:     openPrepared,
	}
}

func openPrepared(ctx context.Context, dir string, o engine.Options) (engine.Opened, error) {
	p, err := Read(dir)
	if err != nil {
		return engine.Opened{}, err
	}
	e, err := Open(ctx, Options{Prepared: p, Threads: o.Threads, MaxBatch: o.MaxBatch, MemoryLimit: o.Memory, Timeout: o.Timeout, Logger: o.Logger})
	if err != nil {
		return engine.Opened{}, err
	}
	return engine.Opened{Running: e, Load: e.LoadTime(), First: engine.TolerantRun}, nil
}
