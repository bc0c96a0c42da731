package onnxruntime

import (
	"errors"
	"fmt"

	ort "github.com/yalue/onnxruntime_go"
)

// Device is what computes.
type Device string

const (
	// CPU is any library's; it is the default, also as the empty string.
	CPU Device = "cpu"
	// CUDA is a GPU of NVIDIA's, the first one that the process sees. It needs the GPU
	// build of ONNX Runtime with its libraries beside it. Prepared models are for CPUs, so
	// that the model is optimised anew at every Open; operators that CUDA has not run on
	// the CPU.
	CUDA Device = "cuda"
)

// ErrDevice is wrapped by Open's error where the device is not to be had.
var ErrDevice = errors.New("the device cuda cannot be used")

// cudaSettings are those of the CUDA execution provider. Its memory grows by what is
// asked for, as a share of a GPU has no more than it was given. Convolutions are chosen
// by rule: trying all of them, the default, would take its time at each new batch size,
// while requests wait.
var cudaSettings = map[string]string{
	"device_id":              "0",
	"arena_extend_strategy":  "kSameAsRequested",
	"cudnn_conv_algo_search": "HEURISTIC",
}

// check refuses what is none of them.
func (d Device) check() error {
	if d == "" || d == CPU || d == CUDA {
		return nil
	}
	return fmt.Errorf("the device is %q; it is %s or %s", string(d), CPU, CUDA)
}

// use has a session run on the device.
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

// refused says what CUDA needs.
func refused(err error) error {
	return fmt.Errorf("%w: %w; it takes the GPU build of ONNX Runtime %s with CUDA and cuDNN, which the template onnx-infer's Dockerfile has with --build-arg VARIANT=cuda, NVIDIA's driver and a GPU", ErrDevice, plain(err), LibraryVersion)
}
