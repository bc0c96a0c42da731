package command

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/forkjoin"
	"github.com/faas-infer/faas-infer/instance/member"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// childModels reads and measures models in child processes of this program. A file that
// crashes the engine then does not crash the provider, and the memory is given back.
type childModels struct {
	// prepared is the directory of prepared models, database the file of
	// operators' profiles; "" for the user's own.
	prepared, database string
	// longest and longestOn: predictions are of the longest path, on the CPU and on a GPU.
	longest, longestOn bool
	// warm keeps warm Python processes, nil for none.
	warm *python.Warmth
	// place sets a child's CPU weight; background is for work that nobody waits for.
	// nil leaves the child beside this process.
	place func(pid int, background bool) error
	// alike has, by directory, what is known of the bundles whose models answer the same requests.
	alike sync.Map

	modelCache
}

// ModelsIn returns models that are read and measured in child processes of this program,
// and prepared in a directory.
func ModelsIn(prepared string) latency.Models { return &childModels{prepared: prepared} }

// contentHash returns the hash of an ONNX file, of a plan, or of the bundle of a manifest.
func contentHash(file string) (string, error) {
	if forkjoin.IsCutting(file) {
		c, err := forkjoin.ReadCutting(file)
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
func (m *childModels) Check(ctx context.Context, file string, known func(hash string) bool) error {
	return m.assumed().Check(ctx, file, known)
}

// Hash implements [latency.Models].
func (m *childModels) Hash(file string) (string, error) {
	seen, err := m.look(file)
	return seen.hash, err
}

// Prepare implements [latency.Models].
func (m *childModels) Prepare(ctx context.Context, file string) (string, error) {
	return m.assumed().Prepare(ctx, file)
}

// Measure implements [latency.Models].
func (m *childModels) Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.assumed().Measure(ctx, file, maxBatch, until)
}

// Sketch implements [latency.Models].
func (m *childModels) Sketch(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.assumed().Sketch(ctx, file, maxBatch, until)
}

// Predict implements [latency.Models].
func (m *childModels) Predict(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	return m.assumed().Predict(ctx, file, maxBatch, until)
}

// Bytes implements [latency.Models].
func (m *childModels) Bytes(file string) int64 { return Weights(file) }

// assumed are the models with the sizes that are assumed.
func (m *childModels) assumed() sizedModels { return sizedModels{m, latency.Sizes{}} }

// isReady reports whether a model is still prepared in a directory.
func isReady(file, dir string) bool {
	if forkjoin.IsCutting(file) {
		return member.Use(dir, time.Now()) == nil
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
