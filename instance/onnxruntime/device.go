package onnxruntime

import (
	"errors"
	"fmt"

	ort "github.com/yalue/onnxruntime_go"
)

// Device is the hardware that computes a model.
type Device string

const (
	// CPU works with any build of the library. It is the default, as is the empty string.
	CPU Device = "cpu"
	// CUDA is the first NVIDIA GPU that the process sees. It needs the GPU build of ONNX
	// Runtime and its libraries beside it. Prepared models are for CPUs, so ONNX Runtime
	// optimises the model at every Open. Operators that CUDA lacks run on the CPU.
	CUDA Device = "cuda"
)

// ErrDevice is wrapped by Open's error if the device is not available.
var ErrDevice = errors.New("the device cuda cannot be used")

// cudaSettings configure the CUDA execution provider. Its memory grows by the requested
// size, because a share of a GPU has a fixed amount. It chooses convolutions by
// heuristic. The default tries all of them at each new batch size, while requests wait.
var cudaSettings = map[string]string{
	"device_id":              "0",
	"arena_extend_strategy":  "kSameAsRequested",
	"cudnn_conv_algo_search": "HEURISTIC",
}

// check refuses an unknown device.
func (d Device) check() error {
	if d == "" || d == CPU || d == CUDA {
		return nil
	}
	return fmt.Errorf("the device is %q; it is %s or %s", string(d), CPU, CUDA)
}

// use makes a session run on the device.
func (d Device) use(options *ort.SessionOptions) error {
	if d != CUDA {
		return nil
	}
	cuda, err := ort.NewCUDAProviderOptions()
	if err != nil {
		return refused(err)
	}
	defer cuda.Destroy()
	if err := errors.Join(cuda.Update(cudaSettings), options.AppendExecutionProviderCUDA(cuda)); err != nil {
		return refused(err)
	}
	return nil
}

// refused wraps an error in ErrDevice and says what CUDA needs.
func refused(err error) error {
	return fmt.Errorf("%w: %w; it needs a GPU, NVIDIA's driver, and the GPU build of ONNX Runtime %s with CUDA and cuDNN (build the template onnx-infer with --build-arg VARIANT=cuda)", ErrDevice, plain(err), LibraryVersion)
}
