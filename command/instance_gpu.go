package command

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
	onCUDA    = "cuda"
)

// onGPU reports whether an ONNX model is computed on a GPU.
func (f *instanceFlags) onGPU() bool {
	return f.device == onCUDA || f.device == automatic && gpu.Shared(os.Getenv)
}

// loadOnGPU loads the model onto the GPU and runs one row. CUDA graphs are captured beside
// requests. The share limits the memory, so the engine does not.
func (f *instanceFlags) loadOnGPU(ctx context.Context, logger zerolog.Logger) (instance.Engine, instance.Startup, error) {
	if f.device == onCUDA && f.threads != 1 {
		return nil, instance.Startup{}, fmt.Errorf("--threads is %d: with --device cuda an ONNX model has one thread, which feeds the GPU; leave --threads out", f.threads)
	}
	if f.model == "" {
		return nil, instance.Startup{}, errors.New("--model is missing: a prepared model is for this host's CPU; also give the ONNX file to compute on a GPU")
	}
	o := cuda.Options{Model: f.model, Library: f.library, MaxBatch: f.maxBatch}
	if content := onnxruntime.PreparedContent(f.prepared); content != "" {
		// Beside the prepared model, which is first a link and then replaced.
		o.Copies, o.Content = filepath.Dir(filepath.Clean(f.prepared)), content
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
