package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/copies"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
)

const (
	// copyPatience is how long an instance waits for one that is preparing the model. Its own load of an
	// unprepared model rarely takes longer.
	copyPatience = 10 * time.Second
	// leanTimes and leanMore bound the memory that [onnxruntime.PrepareLean] takes: so many times the
	// model's size, and so many bytes more.
	leanTimes = 3
	leanMore  = 128 << 20
)

// share lets an instance without a prepared model use the copy that its function's instances on this node
// share. The first one prepares it. Without a copy the instance loads the model as it is.
func (f *instanceFlags) share(ctx context.Context, logger zerolog.Logger) {
	path := os.Getenv(copies.Env)
	if path == "" || f.prepared != "" {
		return
	}
	if _, beside := f.beside(); beside {
		return
	}
	dir, err := copies.Hold(ctx, path)
	if err != nil {
		logger.Warn().Err(err).Msg("the node's copy of the model cannot be used; loading --model")
		return
	}
	f.shared = dir
	if f.onGPU() {
		return // The engine writes its own copy.
	}
	if err := f.findCopy(ctx, logger); err != nil && ctx.Err() == nil {
		logger.Warn().Err(err).Msg("there is no copy of the model on the node; loading --model")
	}
}

// findCopy sets the prepared model, and prepares the model if it is the first to need it.
func (f *instanceFlags) findCopy(ctx context.Context, logger zerolog.Logger) error {
	if err := onnxruntime.Load(f.library); err != nil {
		return err
	}
	return f.shared.Once(ctx, copyPatience, func() bool {
		p, err := onnxruntime.FindPrepared(f.shared.Path)
		if err == nil {
			f.prepared = p.Dir
		}
		return err == nil
	}, func(ctx context.Context) error {
		if err := f.leanEnough(); err != nil {
			return err
		}
		began := time.Now()
		_, err := prepareApart(f.library)(ctx, f.model, f.shared.Path)
		if err == nil {
			logger.Info().Dur("took_ms", time.Since(began)).Msg("prepared the model for all instances of the function on this node")
		}
		return err
	})
}

// leanEnough returns an error if the instance's memory may not suffice to prepare the model. The kernel
// would kill the instance.
func (f *instanceFlags) leanEnough() error {
	size, err := weightOf(f.model)
	if need := leanTimes*size + leanMore; err == nil && f.memory > 0 && f.memory < need {
		err = fmt.Errorf("preparing the model may take %d MiB, and the instance has %d MiB: raise the function's memory limit to share the model's memory on a node", need>>20, f.memory>>20)
	}
	return err
}

// weightOf returns the size of a model in bytes, with all files beside it that may have its weights.
func weightOf(model string) (int64, error) {
	info, err := os.Stat(model)
	if err != nil {
		return 0, err
	}
	size := info.Size()
	beside, err := os.ReadDir(filepath.Dir(model))
	for _, e := range beside {
		if filepath.Ext(e.Name()) == ".onnx" || !e.Type().IsRegular() {
			continue
		}
		info, failed := e.Info()
		if err = errors.Join(err, failed); failed == nil {
			size += info.Size()
		}
	}
	return size, err
}
