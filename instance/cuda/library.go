package cuda

/*
#cgo LDFLAGS: -ldl
#include "session.h"
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// ErrDevice is wrapped by Open's error if the device is not available.
var ErrDevice = errors.New("the device cuda cannot be used")

// refused wraps an error in ErrDevice and says what CUDA needs.
func refused(err error) error {
	return fmt.Errorf("%w: %w; it needs a GPU, NVIDIA's driver, and the GPU build of ONNX Runtime %s with CUDA and cuDNN (run `make onnxruntime-cuda` in a checkout of faas-infer, or build the template onnx-infer with --build-arg VARIANT=cuda)", ErrDevice, err, onnxruntime.CUDAVersion)
}

// failed turns a message of our C code into an error, nil for none.
func failed(message *C.char) error {
	if message == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(message))
	return errors.New(brief(C.GoString(message)))
}

// brief removes line breaks.
func brief(said string) string { return strings.Join(strings.Fields(said), " ") }

// beside are the libraries of CUDA that ONNX Runtime's provider needs, in the order in which
// they need each other. A library that is already loaded under its name is found by all others,
// so one that lies beside ONNX Runtime needs no search path. cuDNN finds its parts by itself.
var beside = []string{
	"libcudart.so.*", "libnvrtc.so.*", "libcublasLt.so.*", "libcublas.so.*", "libcurand.so.*", "libcufft.so.*", "libcudnn.so.*",
}

// libraries is the process's one ONNX Runtime.
var libraries struct {
	sync.Mutex
	version string
}

// libraryPath is the library of the environment variable [onnxruntime.LibraryEnv] if it is set,
// otherwise what `make onnxruntime-cuda` fetched, otherwise that of package onnxruntime.
func libraryPath() (string, error) {
	path, err := onnxruntime.LibraryPath()
	if err != nil || os.Getenv(onnxruntime.LibraryEnv) != "" {
		return path, err
	}
	folder, name := filepath.Split(path)
	own := filepath.Join(filepath.Dir(filepath.Clean(folder)), onnxruntime.CUDAVersion+"-cuda", name)
	if _, err := os.Stat(own); err == nil {
		return own, nil
	}
	return path, nil
}

// Installed returns the major version of CUDA for which the ONNX Runtime of instances was built, 0 if no
// CUDA lies beside it. It opens no library. The error says what is missing.
func Installed() (version int, err error) {
	path, err := libraryPath()
	if err != nil {
		return 0, err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	folder := filepath.Dir(path)
	const provider = "libonnxruntime_providers_cuda.so"
	if _, err := os.Stat(filepath.Join(folder, provider)); err != nil {
		return 0, fmt.Errorf("ONNX Runtime's library %s is not a build for GPUs: there is no %s beside it (run `make onnxruntime-cuda` in a checkout of faas-infer, or set %s to such a build)", path, provider, onnxruntime.LibraryEnv)
	}
	found, err := filepath.Glob(filepath.Join(folder, "libcudart.so.*"))
	for _, file := range found {
		_, suffix, _ := strings.Cut(filepath.Base(file), ".so.")
		major, _, _ := strings.Cut(suffix, ".")
		if n, err := strconv.Atoi(major); err == nil {
			version = max(version, n)
		}
	}
	return version, err
}

// load opens ONNX Runtime at path, by default libraryPath, and CUDA's libraries beside it.
func load(path string) error {
	libraries.Lock()
	defer libraries.Unlock()
	if libraries.version != "" {
		return nil
	}
	if path == "" {
		var err error
		if path, err = libraryPath(); err != nil {
			return err
		}
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	for _, pattern := range beside {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(path), pattern))
		if err != nil {
			return err
		}
		for _, file := range found {
			if err := open(file); err != nil {
				return err
			}
		}
	}
	if err := engine.DisableTelemetry(); err != nil {
		return err
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var version *C.char
	if err := failed(C.ort_load(name, &version)); err != nil {
		return fmt.Errorf("ONNX Runtime library %s, tested version %s: %w", path, onnxruntime.CUDAVersion, err)
	}
	libraries.version = C.GoString(version)
	C.free(unsafe.Pointer(version))
	return nil
}

// driver is the driver's library; tests put a model of it in its place.
var driver = "libcuda.so.1"

func openDriver() error {
	name := C.CString(driver)
	defer C.free(unsafe.Pointer(name))
	return failed(C.driver_open(name))
}

func open(file string) error {
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	return failed(C.library_load(name))
}

// elements are the numbers of ONNX Runtime's element types.
var elements = map[tensor.Type]C.int{
	tensor.FP32: 1, tensor.Uint8: 2, tensor.Int8: 3, tensor.Uint16: 4, tensor.Int16: 5, tensor.Int32: 6, tensor.Int64: 7,
	tensor.Bool: 9, tensor.FP16: 10, tensor.FP64: 11, tensor.Uint32: 12, tensor.Uint64: 13, tensor.BF16: 16,
}

func typeOf(number C.int) (tensor.Type, bool) {
	for t, n := range elements {
		if n == number {
			return t, true
		}
	}
	return "", false
}
