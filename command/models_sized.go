package command

import (
	"context"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/forkjoin"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// sizedModels are childModels whose models have given sizes of free dimensions.
type sizedModels struct {
	*childModels
	sizes latency.Sizes
}

// Sized implements [latency.Sized].
func (m *childModels) Sized(sizes latency.Sizes) latency.Models { return sizedModels{m, sizes} }

// arguments are the flags that tell a child the sizes of a model in a file: those that the
// deployment states, otherwise those of its images.
func (m sizedModels) arguments(file string) (flags []string) {
	if forkjoin.IsCutting(file) {
		return nil // A plan is of the sizes that the model had when it was cut.
	}
	shapes := m.sizes.Shapes
	if form, err := model.ParseImageForm(m.sizes.Image); err == nil && shapes == "" && !engines.IsManifest(file) {
		if read, err := model.ReadOutline(file); err == nil { // Checking says what is wrong with the file.
			shapes = read.ImageShapes(form).String()
		}
	}
	if shapes != "" {
		flags = append(flags, "--shapes", shapes)
	}
	if m.sizes.Max != "" {
		flags = append(flags, "--max-shapes", m.sizes.Max)
	}
	return flags
}

// Check implements [latency.Models].
func (m sizedModels) Check(ctx context.Context, file string, known func(hash string) bool) error {
	return m.checkWith(ctx, file, known, func(ctx context.Context) error {
		return m.asAnnotation(m.check(ctx, file, m.arguments(file)...))
	})
}

// asAnnotation makes an error about one of the flags of arguments one about the annotation from
// which it comes.
func (m sizedModels) asAnnotation(err error) error {
	if err == nil {
		return nil
	}
	if _, why, ok := strings.Cut(err.Error(), "--shapes: "); ok && m.sizes.Shapes != "" {
		return annotation.WrongShapes(m.sizes.Shapes, why)
	}
	if _, why, ok := strings.Cut(err.Error(), "--max-shapes: "); ok && m.sizes.Max != "" {
		return annotation.WrongMaxShapes(m.sizes.Max, why)
	}
	return err
}

// Prepare implements [latency.Models].
func (m sizedModels) Prepare(ctx context.Context, file string) (string, error) {
	prepared, err := m.prepare(ctx, file, m.arguments(file)...)
	return prepared, m.asAnnotation(err)
}

// Measure implements [latency.Models].
func (m sizedModels) Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.measure(ctx, file, maxBatch, until, m.arguments(file)...)
}

// Sketch implements [latency.Models].
func (m sizedModels) Sketch(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.sketch(ctx, file, maxBatch, until, m.arguments(file)...)
}

// Predict implements [latency.Models].
func (m sizedModels) Predict(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.predict(ctx, file, maxBatch, until, m.arguments(file)...)
}
