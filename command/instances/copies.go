package instances

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/copies"
	"github.com/faas-infer/faas-infer/instance/cuda"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
)

const (
	// copyPatience is how long an instance waits for one that is preparing the model. Its own load of an
	// unprepared model rarely takes longer.
	copyPatience = 10 * time.Second
	// otherPatience is how long an instance waits for another that is preparing the model for it, and otherLook
	// the time between two looks.
	otherPatience = time.Minute
	otherLook     = 100 * time.Millisecond
	// leanTimes and leanMore bound the memory that a lean [onnxruntime.Prepare] takes: so many times the
	// model's size, and so many bytes more.
	leanTimes = 3
	leanMore  = 128 << 20
	// copyOnGPU is a file of each copy that the package cuda has completed. A copy that is not found is
	// made with an attempt that is noted, which does no harm.
	copyOnGPU = "cuda-*/manifest.json"
)

// Share lets an instance without a prepared model use the copy that its function's instances on this node
// share. The first one prepares it. Without a copy the instance loads the model as it is.
func (f *Flags) Share(ctx context.Context, logger zerolog.Logger) {
	path := os.Getenv(copies.Env)
	if path == "" || f.Prepared != "" || f.shared != nil {
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
		return // The engine writes its own copy: see keepOnGPU.
	}
	if err := f.findCopy(ctx, logger); err != nil && ctx.Err() == nil {
		logger.Warn().Err(err).Msg("there is no copy of the model on the node; loading --model")
	}
}

// findCopy sets the prepared model, and prepares the model if it is the first to need it.
func (f *Flags) findCopy(ctx context.Context, logger zerolog.Logger) error {
	if err := onnxruntime.Load(f.Library); err != nil {
		return err
	}
	return f.shared.Once(ctx, copyPatience, func() bool {
		p, err := onnxruntime.FindPrepared(f.shared.Path)
		if err == nil {
			f.Prepared = p.Dir
		}
		return err == nil
	}, func(ctx context.Context) error {
		if err := f.leanEnough(); err != nil {
			return err
		}
		began := time.Now()
		_, err := PrepareApart(f.Library, f.sizes)(ctx, f.Model, f.shared.Path)
		if err == nil {
			logger.Info().Dur("took_ms", time.Since(began)).Msg("prepared the model for all instances of the function on this node")
		}
		return err
	})
}

// InPod reports whether the instance has no prepared model, and may find a copy of it on its node.
func (f *Flags) InPod() bool {
	return f.Prepared == "" && f.Model != "" && os.Getenv(copies.Env) != ""
}

// OnCores reports whether the instance computes an ONNX model itself, on cores.
func (f *Flags) OnCores() bool {
	_, beside := f.beside()
	return !beside && !f.onGPU()
}

// Release gives back the copy that Share or AwaitCopy has found. It may have found none.
func (f *Flags) Release() error { return f.shared.Close() }

// AwaitCopy finds the copy of the model that another instance makes, for one which has memory for a part of it
// only: its own attempt would count as failed, and keep others from theirs for an hour.
func (f *Flags) AwaitCopy(ctx context.Context) error {
	if err := onnxruntime.Load(f.Library); err != nil {
		return err
	}
	dir, err := copies.Hold(ctx, os.Getenv(copies.Env))
	if err != nil {
		return fmt.Errorf("the node's copy of the model cannot be used: %w", err)
	}
	patience := time.After(otherPatience)
	for {
		p, err := onnxruntime.FindPrepared(dir.Path)
		if err == nil {
			f.shared, f.Prepared = dir, p.Dir
			return nil
		}
		select {
		case <-time.After(otherLook):
		case <-patience:
			return errors.Join(fmt.Errorf("no instance has prepared the model on this node within %v: %w", otherPatience, err), dir.Close())
		case <-ctx.Done():
			return errors.Join(ctx.Err(), dir.Close())
		}
	}
}

// keepOnGPU lets the engine keep its copy in the directory that the function's instances on this node
// share, unless an instance was killed within the last hour while its engine made one. An engine makes its
// copy while it loads the model, so nobody waits for it: each of those that start meanwhile makes one, and
// one stays. Call end once the engine has made its copy or the instance is stopped.
func (f *Flags) keepOnGPU(ctx context.Context, o *cuda.Options, logger zerolog.Logger) (end func()) {
	if f.shared == nil {
		return func() {}
	}
	attempt, err := f.shared.Begin(ctx, "-cuda", 0, func() bool {
		// A copy for another kind of GPU counts too. So the one for this GPU is made without an attempt.
		found, _ := filepath.Glob(filepath.Join(f.shared.Path, copyOnGPU))
		return len(found) > 0
	})
	if err != nil && !errors.Is(err, copies.ErrMaking) {
		logger.Warn().Err(err).Msg("there is no copy of the model on the node; loading --model")
		o.Copies, o.Content = "", ""
		return func() {}
	}
	// The directory belongs to one image, in which the model's path says which it is.
	o.Copies, o.Content = f.shared.Path, f.Model
	return func() {
		if err := attempt.End(); err != nil {
			logger.Warn().Err(err).Msg("the model's copy counts as failed for an hour")
		}
	}
}

// leanEnough returns an error if the instance's memory may not suffice to prepare the model. The kernel
// would kill the instance.
func (f *Flags) leanEnough() error {
	size, err := weightOf(f.Model)
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
