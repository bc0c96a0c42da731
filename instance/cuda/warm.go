package cuda

/*
#include "session.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/model/zoo"
)

// warming are architectures whose kernels other models have, too: convolutions of all kinds, and
// products of matrices with normalisation and softmax.
var warming = []string{"resnet-50", "mobilenet", "bert-small"}

// Warm makes this process ready to open a model soon. It loads the libraries, makes the CUDA context,
// which fixes the process's share of the GPU, and runs a few models with random weights. So cuDNN and
// cuBLAS are initialised, and common kernels are loaded. The process holds the context's memory from
// then on. The error wraps [ErrDevice] if there is no device.
func Warm(library string) error { return warm(Options{Library: library}, warming) }

func warm(o Options, names []string) (err error) {
	dir, err := os.MkdirTemp("", "faas-infer-warm-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	o.MaxBatch, o.Plain, o.Model = 1, true, filepath.Join(dir, "model.onnx")
	for _, name := range names {
		m, err := zoo.Make(name, 1)
		if err != nil {
			return err
		}
		if err := m.WriteFile(o.Model); err != nil {
			return err
		}
		e, err := Open(o)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := e.Close(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Healthy returns an error if this process can no longer use its GPU, such as after the end of its
// MPS daemon.
func Healthy() error {
	var e C.engine
	var at C.address
	if err := failed(C.device_context(&e)); err != nil {
		return err
	}
	defer C.engine_close(&e)
	if err := failed(C.device_reserve(&e, 1<<12, &at)); err != nil {
		return err
	}
	C.device_release(&e, at)
	return nil
}
