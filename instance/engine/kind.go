package engine

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance"
)

// Kind is one engine that runs models in a process beside the instance: how it knows its
// bundles, and how it checks, prepares and opens them. The package of an engine has one
// as its registration, and package engines lists them.
type Kind struct {
	// Matches reports whether the engine runs the bundle that has a manifest.
	Matches func(manifest string) bool
	// IsPrepared reports whether Prepare made a directory.
	IsPrepared func(dir string) bool
	// Check looks at a bundle without installing or running any of it.
	Check func(ctx context.Context, manifest string) error
	// Hash identifies a bundle's content.
	Hash func(manifest string) (string, error)
	// Prepare installs what a bundle needs, and keeps a copy of the bundle below cache,
	// once. It returns the directory.
	Prepare func(ctx context.Context, manifest, cache string) (dir string, err error)
	// Describe is what Prepare wrote of a directory, for "instance prepare --json" under
	// the key Name.
	Name     string
	Describe func(dir string) (any, error)
	// Open starts what runs a prepared directory.
	Open func(ctx context.Context, dir string, o Options) (Opened, error)
	// InPlace opens a bundle where it lies, as in an image; nil if it must be prepared.
	InPlace func(ctx context.Context, manifest string, o Options) (Opened, error)
	// TakesDevice: the instance's device computes the model, and not what the process
	// decides.
	TakesDevice bool
}

// Options are what every engine is told.
type Options struct {
	Threads, MaxBatch int
	// Memory bounds what the processes may hold, in bytes; 0 is no bound.
	Memory int64
	// Device computes an ONNX model, as package onnxruntime has it; Library is ONNX
	// Runtime's, "" for the usual one.
	Device, Library string
	// Warm is the directory of warm Python processes, "" for none.
	Warm string
	// Timeout is the longest that a batch may take, 0 for [DefaultTimeout].
	Timeout time.Duration
	Logger  zerolog.Logger
}

// Running is an engine that runs a model in processes beside the instance.
type Running interface {
	instance.Engine
	// Memory and ProcessorTime are what the processes hold in bytes and have used.
	Memory() int64
	ProcessorTime() time.Duration
}

// FirstRun is what an instance does with a first run of one row before it is ready: the
// first run takes longer than those that follow.
type FirstRun int

const (
	// NoRun: the model may not run on inputs that nobody sent.
	NoRun FirstRun = iota
	// TolerantRun: inputs of chance may make no sense to the model, so a failure is
	// logged.
	TolerantRun
	// StrictRun: a model that fails cannot be served.
	StrictRun
)

// Opened is an engine that runs.
type Opened struct {
	Running
	// Library and Load are how long it took to load the engine's library and the model.
	Library, Load time.Duration
	First         FirstRun
}
