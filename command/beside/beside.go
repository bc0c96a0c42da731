// Package beside is about models that run in processes beside the instance: what Python
// runs, or a model server; or that have a handler there, before and after the model.
package beside

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/processing"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/instance/upstream"
)

// Engine is one that runs a model in processes beside the instance, Python or a model
// server, or with a handler in one.
type Engine interface {
	instance.Engine
	// Memory and ProcessorTime are what the processes hold in bytes and have used.
	Memory() int64
	ProcessorTime() time.Duration
}

// Options are what all kinds of engine are told.
type Options struct {
	Threads, MaxBatch int
	// Memory bounds what the processes may hold, in bytes; 0 is no bound.
	Memory int64
	// Device is what computes an ONNX model; Python and servers decide that themselves.
	Device onnxruntime.Device
	// Warm is the directory of warm Python processes, "" for none.
	Warm    string
	Timeout time.Duration
	Logger  zerolog.Logger
}

// OpenPython opens what Python runs.
func OpenPython(ctx context.Context, dir string, o Options) (*python.Engine, python.Prepared, error) {
	p, err := python.Read(dir)
	if err != nil {
		return nil, p, err
	}
	engine, err := python.Open(ctx, python.Options{
		Prepared: p, Threads: o.Threads, Warm: o.Warm, MemoryLimit: o.Memory, Timeout: o.Timeout, Logger: o.Logger,
	})
	return engine, p, err
}

// OpenUpstream opens what a model server runs.
func OpenUpstream(ctx context.Context, dir string, o Options) (*upstream.Engine, error) {
	p, err := upstream.Read(dir)
	if err != nil {
		return nil, err
	}
	return upstream.Open(ctx, upstream.Options{
		Prepared: p, Threads: o.Threads, MaxBatch: o.MaxBatch, MemoryLimit: o.Memory, Timeout: o.Timeout, Logger: o.Logger,
	})
}

// OpenProcessing opens an ONNX model with a handler.
func OpenProcessing(ctx context.Context, p processing.Prepared, o Options) (*processing.Engine, error) {
	if err := onnxruntime.Load(""); err != nil {
		return nil, err
	}
	return processing.Open(ctx, processing.Options{
		Prepared: p, Device: o.Device, Threads: o.Threads, MemoryLimit: o.Memory, Timeout: o.Timeout, Logger: o.Logger,
	})
}

// Open opens what [Prepare] has prepared.
func Open(ctx context.Context, dir string, o Options) (Engine, error) {
	if processing.IsPrepared(dir) {
		p, err := processing.Read(dir)
		if err != nil {
			return nil, err
		}
		return OpenProcessing(ctx, p, o)
	}
	if upstream.IsPrepared(dir) {
		return OpenUpstream(ctx, dir, o)
	}
	engine, _, err := OpenPython(ctx, dir, o)
	return engine, err
}

// IsPrepared reports whether Prepare made a directory.
func IsPrepared(dir string) bool {
	return python.IsPrepared(dir) || upstream.IsPrepared(dir) || processing.IsPrepared(dir)
}

// Check looks at a bundle that a process beside the instance runs, without
// installing or running any of it.
func Check(ctx context.Context, manifest string) error {
	if upstream.IsManifest(manifest) {
		return upstream.Check(manifest)
	}
	if processing.IsManifest(manifest) {
		return processing.Check(manifest)
	}
	return python.Check(ctx, manifest)
}

// Hash identifies such a bundle's content.
func Hash(manifest string) (string, error) {
	if upstream.IsManifest(manifest) {
		return upstream.Hash(manifest)
	}
	if processing.IsManifest(manifest) {
		return processing.Hash(manifest)
	}
	return python.Hash(manifest)
}

// Prepare installs what such a bundle needs and keeps a copy of it below
// cache, once; it returns the directory.
func Prepare(ctx context.Context, manifest, cache string) (string, error) {
	if upstream.IsManifest(manifest) {
		return upstream.Prepare(ctx, manifest, cache)
	}
	if processing.IsManifest(manifest) {
		if err := onnxruntime.Load(""); err != nil {
			return "", err
		}
		return processing.Prepare(manifest, cache)
	}
	return python.Prepare(ctx, manifest, cache)
}
