package children

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// sizedModels are Models whose models have given sizes of free dimensions, objective and
// memory.
type sizedModels struct {
	*Models
	sizes latency.Sizes
}

// Sized implements [latency.Sized].
func (m *Models) Sized(sizes latency.Sizes) latency.Models { return sizedModels{m, sizes} }

// arguments are the flags that tell a child the sizes of a model in a file: those that the
// deployment states, otherwise those of its images.
func (m sizedModels) arguments(file string) (flags []string) {
	if bundle.IsCutting(file) {
		return nil // A plan is of the sizes that the model had when it was cut.
	}
	switch {
	case m.sizes.Shapes != "":
		flags = append(flags, "--shapes", m.sizes.Shapes)
	case m.sizes.Image != "" && !engines.IsManifest(file):
		flags = append(flags, "--image-form", m.sizes.Image)
	}
	if m.sizes.Max != "" {
		flags = append(flags, "--max-shapes", m.sizes.Max)
	}
	return flags
}

// runArguments are arguments and the time of one run that is hopeless.
func (m sizedModels) runArguments(file string) []string {
	flags := m.arguments(file)
	if m.sizes.Objective > 0 && !bundle.IsCutting(file) && !engines.IsManifest(file) {
		flags = append(flags, "--max-run", maxRun(m.sizes.Objective).String())
	}
	return flags
}

// boundsOf are the bounds of a child that works on a file.
func (m sizedModels) boundsOf(w Weight, file string) bounds {
	if engines.IsManifest(file) {
		return bundleBounds(m.sizes.Memory, freeMemory())
	}
	return boundsOf(w, m.sizes.Objective, Weights(file), m.sizes.Memory)
}

// Check implements [latency.Models].
func (m sizedModels) Check(ctx context.Context, file string, known func(hash string) bool) error {
	if err := m.fits(file); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	checked := sync.OnceValue(func() error { return m.asAnnotation(m.check(ctx, file)) })
	var early sync.WaitGroup
	defer early.Wait()
	defer cancel()
	if info, err := os.Stat(file); err == nil && info.Size() >= largeModel && !m.looked(file) {
		early.Go(func() { _ = checked() })
	}
	hash, err := m.Hash(file)
	if err != nil || known(hash) {
		return err
	}
	return checked()
}

// check reads a model, infers its graph, and tries it in what is left of tryTime. It checks a bundle without
// running it.
func (m sizedModels) check(ctx context.Context, file string) error {
	began := time.Now()
	arguments := append([]string{"model", "read", file}, m.arguments(file)...)
	if _, err := m.runBound(ctx, Foreground, m.boundsOf(Foreground, file), nil, arguments...); err != nil {
		return err
	}
	return m.try(ctx, file, tryTime-time.Since(began))
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
	prepared, err := m.prepare(ctx, file)
	return prepared, m.asAnnotation(err)
}

func (m sizedModels) prepare(ctx context.Context, file string) (string, error) {
	seen, err := m.look(file)
	if err != nil {
		return "", err
	}
	sizes := strings.Join(m.arguments(file), " ")
	if seen.ready != "" && seen.sizes == sizes && isReady(file, seen.ready) {
		return seen.ready, m.keepWarm(seen.ready)
	}
	arguments := append([]string{"instance", "prepare", "--model", file, "--cache", m.Prepared}, m.runArguments(file)...)
	out, err := m.runBound(ctx, Foreground, m.boundsOf(Foreground, file), nil, arguments...)
	if errors.Is(err, errDied) {
		const way = "export it with other operators, or give the machine more memory"
		return "", fmt.Errorf("the model ends the process that prepares it (%w); %s", err, way)
	}
	if err != nil {
		return "", err
	}
	prepared := strings.TrimSpace(string(out))
	m.keep(file, seen, sizes, prepared)
	return prepared, m.keepWarm(prepared)
}

// forkable waits until a model in Python can be forked from a warm process.
func (m sizedModels) forkable(ctx context.Context, file string) error {
	if !engines.IsManifest(file) {
		return nil
	}
	prepared, err := m.Prepare(ctx, file)
	if err != nil {
		return err
	}
	return m.awaitWarm(ctx, prepared)
}

// Measure implements [latency.Models].
func (m sizedModels) Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	if err := m.forkable(ctx, file); err != nil {
		return "", nil, err
	}
	return m.profile(ctx, Background, "model", file, maxBatch, until)
}

// Sketch implements [latency.Models].
func (m sizedModels) Sketch(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	if err := m.forkable(ctx, file); err != nil {
		return "", nil, err
	}
	if engines.IsManifest(file) {
		return m.profile(ctx, Foreground, "model", file, maxBatch, until, "--sketch")
	}
	hash, err := m.Hash(file)
	if err != nil {
		return "", nil, err
	}
	return m.profile(ctx, Foreground, "predict", file, maxBatch, until, "--sketch", "--content", hash)
}

// Assume implements [latency.Assumer]. It refuses small models, which take no longer to sketch.
func (m sizedModels) Assume(
	ctx context.Context, file string, maxBatch int, until time.Duration,
) (string, *profiler.Profile, error) {
	if engines.IsManifest(file) || bundle.IsCutting(file) || Weights(file) < largeModel {
		return "", nil, latency.ErrNotAssumed
	}
	hash, err := m.Hash(file)
	if err != nil {
		return "", nil, err
	}
	return m.profile(ctx, Foreground, "predict", file, maxBatch, until, "--assume", "--content", hash)
}

// Predict implements [latency.Models].
func (m sizedModels) Predict(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	if engines.IsManifest(file) {
		return "", nil, fmt.Errorf("%w: the operators of a model in Python, a model server or a handler are not known", latency.ErrUnpredictable)
	}
	prepared, p, err := m.profile(ctx, Background, "predict", file, maxBatch, until)
	switch {
	case err != nil:
		return "", nil, asUnpredictable(err)
	case p.Memory <= 0:
		return "", nil, errors.New("the predicted profile does not say how much memory the model needs")
	}
	return prepared, p, nil
}

// maxProfile bounds a profile in bytes.
const maxProfile = 64 << 20

// profile runs one of the profile commands on a model file.
func (m sizedModels) profile(ctx context.Context, weight Weight, command, file string, maxBatch int, until time.Duration, more ...string) (string, *profiler.Profile, error) {
	// The file disappears with the last process that has it open.
	fd, err := unix.MemfdCreate("profile", unix.MFD_CLOEXEC)
	if err != nil {
		return "", nil, fmt.Errorf("file for the profile: %w", err)
	}
	out := os.NewFile(uintptr(fd), "profile")
	defer out.Close()
	arguments := []string{"profile", command, file, "--json", "--out", inherited, "--prepared", m.Prepared,
		"--max-batch", strconv.Itoa(maxBatch), "--until", until.String()}
	arguments = append(append(arguments, m.runArguments(file)...), more...)
	if m.sizes.Tokens > 0 {
		arguments = append(arguments, "--max-length", strconv.Itoa(m.sizes.Tokens))
	}
	if m.Warm != nil && engines.IsManifest(file) {
		arguments = append(arguments, "--warm", m.Warm.Dir())
	}
	if command == "predict" {
		arguments = append(arguments, "--database", m.Database)
		longest := m.Longest
		if slices.Contains(more, gpuName) {
			longest = m.LongestOn
		}
		if longest {
			arguments = append(arguments, "--longest-path")
		}
	}
	b := m.boundsOf(weight, file)
	if slices.Contains(more, deviceFlag) {
		b.Memory = 0 // CUDA maps the GPU's memory, too.
		b.CPU, b.time = patientBy*b.CPU, patientBy*b.time
	}
	if _, err := m.runBound(ctx, weight, b, out, arguments...); err != nil {
		return "", nil, err
	}
	text, err := io.ReadAll(io.LimitReader(out, maxProfile))
	if err != nil {
		return "", nil, fmt.Errorf("read the profile: %w", err)
	}
	var measured profiler.Measured
	if err := json.Unmarshal(text, &measured); err != nil {
		return "", nil, fmt.Errorf("read the profile: %w", err)
	}
	if measured.Profile == nil {
		return "", nil, errors.New("the profile is empty")
	}
	if measured.Profile.Machine == m.Machine {
		keepYardstick(measured.Profile.Yardstick)
		measured.Profile.Yardstick = m.yardstick(ctx)
	}
	return measured.Prepared, measured.Profile, measured.Profile.Validate()
}
