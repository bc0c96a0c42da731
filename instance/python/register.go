package python

import (
	"context"

	"github.com/faas-infer/faas-infer/instance/engine"
)

// Kind returns the engine of models in Python: those with a handler, or those that
// TensorFlow runs alone.
func Kind() engine.Kind {
	return engine.Kind{
		Name: "python", Matches: IsManifest, IsPrepared: IsPrepared, Check: Check, Hash: Hash, Prepare: Prepare,
		Describe: func(dir string) (any, error) { return Read(dir) },
		Open:     openPrepared,
	}
}

func openPrepared(ctx context.Context, dir string, o engine.Options) (engine.Opened, error) {
	p, err := Read(dir)
	if err != nil {
		return engine.Opened{}, err
	}
	e, err := Open(ctx, Options{Prepared: p, Threads: o.Threads, Warm: o.Warm, MemoryLimit: o.Memory, Timeout: o.Timeout, Logger: o.Logger})
	if err != nil {
		return engine.Opened{}, err
	}
	opened := engine.Opened{Running: e}
	opened.Load, _ = e.LoadTime()
	if p.Handler == "" {
		opened.First = engine.StrictRun
	}
	return opened, nil
}
