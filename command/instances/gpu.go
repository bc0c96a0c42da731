package instances

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/cuda"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
)

// The values of --device. With automatic it depends on the instance's GPU share.
const (
	automatic = "auto"
	onCPU     = "cpu"
	OnCUDA    = "cuda"
)

// onGPU reports whether an ONNX model is computed on a GPU.
func (f *Flags) onGPU() bool {
	return f.Device == OnCUDA || f.Device == automatic && gpu.Shared(os.Getenv)
}

// loadOnGPU loads the model onto the GPU and runs one row. CUDA graphs are captured beside
// requests. The share limits the memory, so the engine does not.
func (f *Flags) loadOnGPU(ctx context.Context, logger zerolog.Logger) (instance.Engine, instance.Startup, error) {
	if f.Device == OnCUDA && f.Threads != 1 {
		return nil, instance.Startup{}, fmt.Errorf("--threads is %d: with --device cuda an ONNX model has one thread, which feeds the GPU; leave --threads out", f.Threads)
	}
	if f.Model == "" {
		return nil, instance.Startup{}, errors.New("--model is missing: a prepared model is for this host's CPU; also give the ONNX file to compute on a GPU")
	}
	o := cuda.Options{Model: f.Model, Library: f.Library, MaxBatch: f.MaxBatch}
	if content := onnxruntime.PreparedContent(f.Prepared); content != "" {
		// Beside the prepared model, which is first a link and then replaced.
		o.Copies, o.Content = filepath.Dir(filepath.Clean(f.Prepared)), content
	}
	end := f.keepOnGPU(ctx, &o, logger)
	e, err := cuda.Open(o)
	if err != nil {
		end() // Open does without a copy, so none is at fault.
		return nil, instance.Startup{}, err
	}
	cuda.AfterWait(ctx, e, func(err error) {
		defer end()
		if err == nil {
			logger.Info().Bool("graphs", e.Graphs()).Str("why_not", e.WhyNot()).Interface("stages", e.Stages()).Interface("weights", e.Weights()).Msg("all batch sizes are prepared")
		}
	})
	return e, instance.Startup{Library: e.LibraryTime(), Load: e.LoadTime(), FirstRun: e.FirstRun()}, nil
}
