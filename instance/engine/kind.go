package engine

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance"
)

// Kind registers one engine that runs models in a process beside the instance. It
// recognises its bundles, and checks, prepares and opens them. Each engine's package
// returns one Kind, and package engines lists them.
type Kind struct {
	// Matches reports whether the engine runs the bundle with this manifest file.
	Matches func(manifest string) bool
	// IsPrepared reports whether Prepare made this directory.
	IsPrepared func(dir string) bool
	// Check checks a bundle without installing or running any of it.
	Check func(ctx context.Context, manifest string) error
	// Hash identifies a bundle's content.
	Hash func(manifest string) (string, error)
	// Prepare installs what a bundle needs and keeps a copy of the bundle below cache.
	// It does so once and returns the prepared directory.
	Prepare func(ctx context.Context, manifest, cache string) (dir string, err error)
	// Describe returns the record that Prepare wrote into a directory. The command
	// "instance prepare --json" prints it under the key Name.
	Name     string
	Describe func(dir string) (any, error)
	// Open starts the process that runs a prepared directory.
	Open func(ctx context.Context, dir string, o Options) (Opened, error)
	// InPlace opens a bundle without a copy, as an image needs it. It is nil if a
	// bundle must be prepared first.
	InPlace func(ctx context.Context, manifest string, o Options) (Opened, error)
	// TakesDevice says that the model runs on the instance's device. Otherwise the
	// process chooses its device.
	TakesDevice bool
}

// Options apply to every engine.
type Options struct {
	Threads, MaxBatch int
	// Memory is the limit of the processes' memory in bytes, 0 for no limit.
	Memory int64
	// CUDA computes an ONNX model on the GPU.
	CUDA bool
	// Library is the path of the ONNX Runtime library, "" for the default one.
	Library string
	// Warm is the directory of warm Python processes, "" for none.
	Warm string
	// Timeout is the maximum time of a batch, 0 for [DefaultTimeout].
	Timeout time.Duration
	Logger  zerolog.Logger
}

// Running is an engine that runs a model in processes beside the instance.
type Running interface {
	instance.Engine
	// Platform is what runs the model, as Triton names it: onnxruntime_onnx,
	// tensorflow_savedmodel or python, or the model server's own name.
	Platform() string
	// Memory returns the processes' memory in bytes, ProcessorTime their CPU time.
	Memory() int64
	ProcessorTime() time.Duration
}

// FirstRun says whether an instance runs one row of made-up inputs before it is ready,
// and what a failure means. The first run takes longer than later ones.
type FirstRun int

const (
	// NoRun skips the first run: the model must not see inputs that no client sent.
	NoRun FirstRun = iota
	// TolerantRun logs a failure: the model may refuse random inputs.
	TolerantRun
	// StrictRun refuses to serve a model that fails.
	StrictRun
)

// Opened is a running engine.
type Opened struct {
	Running
	// Library and Load are the times to load the engine's library and the model.
	Library, Load time.Duration
	First         FirstRun
}
