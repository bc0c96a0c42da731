package bundles

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/children"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/store"
)

// Cutter finds the ways to cut models over several instances, and has them made.
type Cutter interface {
	// WithPlans adds the known ways to cut a function's models, and leaves out models that are too large for
	// one instance. The error names the annotation or the limit that is wrong.
	WithPlans(ctx context.Context, f *provider.Function, models []control.Model) ([]control.Model, error)
	// Make makes the plans of a function's models. It does nothing for those that are made.
	Make(ctx context.Context, f *provider.Function, models []control.Model) error
	// Suggestions returns the plans of a function's models as if they could be cut, as far as they are soon
	// known.
	Suggestions(ctx context.Context, f *provider.Function, models []control.Model) []control.Model
	// Tidy removes the plans, and what was prepared for them, that nothing has used for [UnusedFor]. models
	// returns a function's models without the ways to cut them.
	Tidy(now time.Time, functions []store.Function, running []cluster.Instance,
		models func(*provider.Function) ([]control.Model, error)) (removed []string, err error)
	// BeginTidying removes unused plans every tidyPeriod until Close, for providers whose instances do not
	// load what was prepared from plans.
	BeginTidying(functions func(namespace string) ([]store.Function, error))
	// Close ends what is being made and waits for its end.
	Close() error
}

// CutterOptions are what a [Cutter] is made of.
type CutterOptions struct {
	// State is the provider's directory; plans are below it.
	State string
	// Models makes plans in children, and prepares what is cut.
	Models *children.Models
	// Pods says that instances cut their parts out of their own images.
	Pods bool
	// Shared has the plans of all replicas, nothing if there is one.
	Shared Sharing
	// Files are models whose files need not be here, nil if all are.
	Files  Files
	Logger zerolog.Logger
}

// SharedPlans keeps plans for all replicas of a provider, by keys that say what was asked of which
// model on which kind of machine.
type SharedPlans interface {
	// Plans returns the plans under a key, as JSON; store.ErrAbsent if there are none.
	Plans(key string) ([]byte, error)
	// PutPlans stores plans.
	PutPlans(key string, plans []byte) error
	// KeepPlans deletes plans that were stored before a time, except those of the keys.
	KeepPlans(keys []string, before time.Time) error
}

// Sharing lets the replicas of a provider use the plans that the leader has made.
type Sharing struct {
	Plans SharedPlans
	// Leads reports whether this replica leads.
	Leads func() bool
}

// Files are models whose files need not be on this machine.
type Files interface {
	// Known returns the hash of a model that was accepted before, and the size of its weights in
	// bytes: see [children.Weights]. It returns "" for a model that has to be read.
	Known(file string) (hash string, weights int64)
	// Here brings a model's file to this machine if it is not there.
	Here(ctx context.Context, file string) error
}

var newCutter func(CutterOptions) Cutter

// RegisterCutter sets what makes cutters. The room of a paper calls it when it is initialised; a second one
// panics.
func RegisterCutter(create func(CutterOptions) Cutter) {
	if newCutter != nil {
		panic("two rooms cut models")
	}
	newCutter = create
}

// NewCutter makes a cutter. Without a registered one, deployments that ask for cutting are refused.
func NewCutter(o CutterOptions) Cutter {
	if newCutter == nil {
		return whole{files: o.Files}
	}
	return newCutter(o)
}

// whole is the cutter of a program that cuts no models.
type whole struct {
	files Files
}

// WithPlans implements [Cutter].
func (w whole) WithPlans(_ context.Context, f *provider.Function, models []control.Model) ([]control.Model, error) {
	if f.Inference.Partition != "" {
		return nil, Uncuttable(f, "this program cuts no models; it must be off")
	}
	for _, m := range models {
		if bytes := WeightsOf(w.files, m); Oversized(f, bytes) {
			return nil, TooLarge(f, bytes, "; raise it")
		}
	}
	return models, nil
}

// Make implements [Cutter].
func (whole) Make(context.Context, *provider.Function, []control.Model) error { return nil }

// Suggestions implements [Cutter].
func (whole) Suggestions(context.Context, *provider.Function, []control.Model) []control.Model {
	return nil
}

// Tidy implements [Cutter].
func (whole) Tidy(time.Time, []store.Function, []cluster.Instance, func(*provider.Function) ([]control.Model, error)) ([]string, error) {
	return nil, nil
}

// BeginTidying implements [Cutter].
func (whole) BeginTidying(func(namespace string) ([]store.Function, error)) {}

// Close implements [Cutter].
func (whole) Close() error { return nil }

// Uncuttable refuses a function that asks for cutting, and says why.
func Uncuttable(f *provider.Function, why string) error {
	return &annotation.Error{Key: annotation.InferPartition, Value: f.Inference.Partition, Why: why}
}

// NotCut is the error of making a plan, which names the annotation.
func NotCut(err error) error { return fmt.Errorf("%s: %w", annotation.InferPartition, err) }

// WeightsOf returns the size of an ONNX model's weights in bytes, 0 for a model that runs beside its
// instance.
func WeightsOf(files Files, m control.Model) (bytes int64) {
	if engines.IsManifest(m.File) {
		return 0
	}
	if files != nil {
		_, bytes = files.Known(m.File)
	}
	if bytes == 0 {
		bytes = children.Weights(m.File)
	}
	return bytes
}

// Oversized reports whether weights alone exceed the memory of a function's instance.
func Oversized(f *provider.Function, bytes int64) bool {
	limit := f.Inference.Limits.Memory
	return limit > 0 && bytes > limit
}

// TooLarge refuses a model for its weights; more ends the sentence and says what to do.
func TooLarge(f *provider.Function, bytes int64, more string) error {
	return &annotation.Error{Key: "limits.memory", Value: MemoryLimit(f), Why: fmt.Sprintf("the model has %d MiB of weights%s", bytes>>20, more)}
}

// MemoryLimit is a function's memory limit as its deployment states it, "" for none.
func MemoryLimit(f *provider.Function) string {
	if f.Deployment.Limits == nil {
		return ""
	}
	return f.Deployment.Limits.Memory
}

// Background runs work until it is closed. The zero value is ready.
type Background struct {
	mu     sync.Mutex
	closed bool
	// life is the context of all work, nil before the first. end ends it.
	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup
}

// Begin does work beside the caller, with a context that Close ends. It reports false after Close.
func (b *Background) Begin(work func(ctx context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	if b.life == nil {
		b.life, b.end = context.WithCancel(context.Background())
	}
	ctx := b.life
	b.work.Go(func() { work(ctx) })
	return true
}

// Close ends the work and waits for its end.
func (b *Background) Close() error {
	b.mu.Lock()
	if b.closed = true; b.end != nil {
		b.end()
	}
	b.mu.Unlock()
	b.work.Wait()
	return nil
}
