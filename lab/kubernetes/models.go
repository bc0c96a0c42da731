package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
)

const (
	engine  = "given"
	machine = "given"
	// modelMemory is what an instance is said to take.
	modelMemory = 100 << 20
	// parallelPart is how much faster a second core makes a batch.
	parallelPart = 1.8
)

// Times are those of a model whose single request takes exec on one core, as a
// stand-in is to answer.
func Times(exec time.Duration, batch int) time.Duration {
	return exec * time.Duration(batch+1) / 2
}

// models are such whose times are given by the image's tag: they need no engine.
type models struct{}

// Check accepts what has a time.
func (models) Check(_ context.Context, file string, _ func(string) bool) error {
	_, err := given(file)
	return err
}

// Hash is the file's name.
func (models) Hash(file string) (string, error) { return file, nil }

// Prepare is done in the image.
func (models) Prepare(context.Context, string) (string, error) { return modelPath, nil }

// Measure knows the times.
func (models) Measure(_ context.Context, file string, maxBatch int, _ time.Duration) (string, *profiler.Profile, error) {
	exec, err := given(file)
	if err != nil {
		return "", nil, err
	}
	p := &profiler.Profile{Model: file, Engine: engine, Machine: machine, Memory: modelMemory}
	for threads, faster := range map[int]float64{1: 1, 2: parallelPart} {
		for b := 1; b <= maxBatch; b *= 2 {
			us := float64(Times(exec, b).Microseconds()) / faster
			p.Measurements = append(p.Measurements, profiler.Measurement{Batch: b, Threads: threads, Median: us, P95: us, CPU: us * float64(threads), Runs: 20})
		}
	}
	return modelPath, p, nil
}

// Predict leaves it to Measure.
func (m models) Predict(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.Measure(ctx, file, maxBatch, until)
}

// Sketch is Measure.
func (m models) Sketch(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.Measure(ctx, file, maxBatch, until)
}

// given reads the time in an image's name.
func given(image string) (time.Duration, error) {
	name, _, _ := strings.Cut(image, "@")
	exec, err := time.ParseDuration(name[strings.LastIndexByte(name, ':')+1:])
	if err != nil {
		return 0, fmt.Errorf("the tag of %q is to be a time: %w", image, err)
	}
	return exec, nil
}

// modelPath is where a model is in its image.
const modelPath = "/bundle/model.onnx"

// bundles: the image is all there is to know.
type bundles struct{}

// Model is control.Bundles'.
func (bundles) Model(_ context.Context, f *provider.Function) (bundle, file string, err error) {
	return f.Deployment.Image, f.Deployment.Image, nil
}

// secrets: there are none.
type secrets struct{}

// File is control.Secrets'.
func (secrets) File(_, secret string) (string, error) {
	return "", fmt.Errorf("there is no secret %q", secret)
}

// Version is control.Secrets'.
func (secrets) Version(string, string) string { return "" }

// Profiles keeps profiles in memory; several replicas share one.
type Profiles struct{ kept sync.Map }

var errUnknown = errors.New("not known")

// Profile is times.Profiles'.
func (s *Profiles) Profile(key string) (*profiler.Profile, error) {
	if p, ok := s.kept.Load(key); ok {
		return p.(*profiler.Profile), nil
	}
	return nil, errUnknown
}

// PutProfile is times.Profiles'.
func (s *Profiles) PutProfile(key string, p *profiler.Profile) error {
	s.kept.Store(key, p)
	return nil
}
