package testprovider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/control"
)

const (
	engine  = "given"
	machine = "given"
	// modelMemory is the memory of an instance in bytes, by the profile.
	modelMemory = 100 << 20
	// secondCore is how many times faster two cores are than one.
	secondCore = 1.8
)

// Times returns the time of a batch on one core if a single request takes exec. Stand-ins
// answer after this time.
func Times(exec time.Duration, batch int) time.Duration {
	return exec * time.Duration(batch+1) / 2
}

// models implements control.Models without an engine: an image's tag gives the model's
// time.
type models struct{}

// Check accepts an image with a time.
func (models) Check(_ context.Context, file string, _ func(string) bool) error {
	_, err := given(file)
	return err
}

// Hash returns the file's name.
func (models) Hash(file string) (string, error) { return file, nil }

// Bytes returns 0: the models have no files.
func (models) Bytes(string) int64 { return 0 }

// Prepare does nothing: the image has the prepared model.
func (models) Prepare(context.Context, string) (string, error) { return modelPath, nil }

// Measure returns a profile with the times of the image's tag.
func (models) Measure(_ context.Context, file string, maxBatch int, _ time.Duration) (string, *profiler.Profile, error) {
	exec, err := given(file)
	if err != nil {
		return "", nil, err
	}
	p := &profiler.Profile{Model: file, Engine: engine, Machine: machine, Memory: modelMemory}
	for threads, faster := range map[int]float64{1: 1, 2: secondCore} {
		for b := 1; b <= maxBatch; b *= 2 {
			us := float64(Times(exec, b).Microseconds()) / faster
			p.Measurements = append(p.Measurements, profiler.Measurement{Batch: b, Threads: threads, Median: us, P95: us, CPU: us * float64(threads), Runs: 20})
		}
	}
	return modelPath, p, nil
}

// Predict calls Measure.
func (m models) Predict(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.Measure(ctx, file, maxBatch, until)
}

// Sketch calls Measure.
func (m models) Sketch(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.Measure(ctx, file, maxBatch, until)
}

// given reads the time in an image's tag.
func given(image string) (time.Duration, error) {
	name, _, _ := strings.Cut(image, "@")
	exec, err := time.ParseDuration(name[strings.LastIndexByte(name, ':')+1:])
	if err != nil {
		return 0, fmt.Errorf("image %q: the tag must be a time: %w", image, err)
	}
	return exec, nil
}

// modelPath is the path of a model in its image.
const modelPath = "/bundle/model.onnx"

// bundles implements control.Bundles with the image's name only.
type bundles struct{}

// Models implements control.Bundles.
func (bundles) Models(_ context.Context, f *provider.Function) (bundle string, models []control.Model, err error) {
	return f.Deployment.Image, []control.Model{{File: f.Deployment.Image, Images: f.Inference.Image}}, nil
}

// secrets implements control.Secrets without any secret.
type secrets struct{}

// File implements control.Secrets.
func (secrets) File(_, secret string) (string, error) {
	return "", fmt.Errorf("there is no secret %q", secret)
}

// Version implements control.Secrets.
func (secrets) Version(string, string) string { return "" }

// Profiles keeps profiles in memory. Several replicas may share one.
type Profiles struct{ kept sync.Map }

var errUnknown = errors.New("there is no such profile")

// Profile returns the profile of a key.
func (s *Profiles) Profile(key string) (*profiler.Profile, error) {
	if p, ok := s.kept.Load(key); ok {
		return p.(*profiler.Profile), nil
	}
	return nil, errUnknown
}

// PutProfile stores the profile of a key.
func (s *Profiles) PutProfile(key string, p *profiler.Profile) error {
	s.kept.Store(key, p)
	return nil
}
