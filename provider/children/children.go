// Package children reads, prepares and measures models in child processes of this program. A file
// that crashes the engine then does not crash the provider, and the memory is given back. It decides
// nothing of functions. Begin reading at [Models]; Run in run.go starts a child and bounds it.
package children

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// Config says how models are read and measured.
type Config struct {
	// Prepared is the directory of prepared models, Database the file of operators' profiles; "" for
	// the user's own.
	Prepared, Database string
	// Machine names this machine in profiles.
	Machine string
	// Longest and LongestOn: predictions are of the longest path, on the CPU and on a GPU.
	Longest, LongestOn bool
	// Warm keeps warm Python processes, nil for none.
	Warm *python.Warmth
	// Place sets a child's CPU weight; background is for work that nobody waits for.
	// nil leaves the child beside this process.
	Place func(pid int, background bool) error
}

// Models reads and measures models in child processes of this program. The zero value is ready.
type Models struct {
	Config
	// alike has, by directory, what is known of the bundles whose models answer the same requests.
	alike sync.Map
	// texts has, by the models' files, what they were last checked with that take texts.
	texts sync.Map

	modelCache
}

// New returns models that are read and measured as c says.
func New(c Config) *Models { return &Models{Config: c} }

// contentHash returns the hash of an ONNX file, of a plan, or of the bundle of a manifest.
func contentHash(file string) (string, error) {
	if bundle.IsCutting(file) {
		c, err := bundle.ReadCutting(file)
		if err != nil {
			return "", err
		}
		return c.Plan.Hash(), nil
	}
	if engines.IsManifest(file) {
		return engines.Of(file).Hash(file)
	}
	return model.ContentHash(file)
}

// largeModel is the size in bytes from which a file is hashed and checked at the same
// time. The deployment waits for both, and each takes half a second for 400 MB.
const largeModel = 64 << 20

// Check implements [latency.Models].
func (m *Models) Check(ctx context.Context, file string, known func(hash string) bool) error {
	return m.assumed().Check(ctx, file, known)
}

// Hash implements [latency.Models].
func (m *Models) Hash(file string) (string, error) {
	seen, err := m.look(file)
	return seen.hash, err
}

// Prepare implements [latency.Models].
func (m *Models) Prepare(ctx context.Context, file string) (string, error) {
	return m.assumed().Prepare(ctx, file)
}

// Measure implements [latency.Models].
func (m *Models) Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.assumed().Measure(ctx, file, maxBatch, until)
}

// Sketch implements [latency.Models].
func (m *Models) Sketch(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.assumed().Sketch(ctx, file, maxBatch, until)
}

// Assume implements [latency.Assumer].
func (m *Models) Assume(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.assumed().Assume(ctx, file, maxBatch, until)
}

// Predict implements [latency.Models].
func (m *Models) Predict(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.assumed().Predict(ctx, file, maxBatch, until)
}

// Bytes implements [latency.Models].
func (m *Models) Bytes(file string) int64 { return Weights(file) }

// CheckFile reads a model, infers its graph and tries it, whatever is known of it. It checks a bundle
// without running it.
func (m *Models) CheckFile(ctx context.Context, file string) error {
	return m.assumed().check(ctx, file)
}

// Verdict returns what "model check" says of a model's file, or of a bundle by its manifest, as JSON: whether it
// meets an objective here, 0 for none, with which configs, and what it takes and returns.
func (m *Models) Verdict(ctx context.Context, file string, slo time.Duration) ([]byte, error) {
	sized := sizedModels{m, latency.Sizes{Objective: slo}}
	arguments := []string{"model", "check", file, "--verdict", "--slo", slo.String(), "--prepared", m.Prepared, "--database", m.Database}
	return m.runBound(ctx, Foreground, sized.boundsOf(Foreground, file), nil, arguments...)
}

// PreparedAt returns the directory where a file was prepared last, "" if that is not known.
func (m *Models) PreparedAt(file string) string {
	seen, _ := m.known(file)
	return seen.ready
}

// assumed are the models with the sizes that are assumed.
func (m *Models) assumed() sizedModels { return sizedModels{m, latency.Sizes{}} }

var useParts func(dir string, now time.Time) error

// RegisterParts sets what notes that the prepared parts of a cut model in a directory are used at a time; its
// error says that they must be prepared again. The room of a paper calls it when it is initialised; a second
// one panics.
func RegisterParts(use func(dir string, now time.Time) error) {
	if useParts != nil {
		panic("two rooms prepare parts of models")
	}
	useParts = use
}

// isReady reports whether a model is still prepared in a directory.
func isReady(file, dir string) bool {
	if bundle.IsCutting(file) && useParts != nil {
		return useParts(dir, time.Now()) == nil
	}
	_, err := os.Stat(dir)
	return err == nil
}

// asUnpredictable makes a child's error wrap [latency.ErrUnpredictable] if its text
// begins with that error's.
func asUnpredictable(err error) error {
	if why, ok := strings.CutPrefix(err.Error(), latency.ErrUnpredictable.Error()+":"); ok {
		return fmt.Errorf("%w: %s", latency.ErrUnpredictable, strings.TrimSpace(why))
	}
	return err
}

// gpuName is the flag of "profile predict" for the times on a GPU.
const gpuName = "--gpu-name"

// deviceFlag is the flag of "profile model" for times that are measured on a GPU.
const deviceFlag = "--device"

// inherited is the path by which a child opens the file that it got from run.
const inherited = "/proc/self/fd/3"
