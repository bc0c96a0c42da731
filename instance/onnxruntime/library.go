// Package onnxruntime is the engine that runs ONNX models in the instance's own
// process, with the ONNX Runtime library. It does not run models with a handler: see
// package engines. Begin with [Open].
//
// [Prepare] prepares a model once per host. It optimises the model for this host's CPU
// and writes it in a form that [Open] maps into memory. Another instance then starts in
// milliseconds and shares one copy of the weights in the page cache. This keeps t_cold
// small: INFless §3.1 and §3.5 start instances as the load requires.
package onnxruntime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/faas-infer/faas-infer/instance/engine"
)

const (
	// LibraryEnv is the environment variable that names the library file.
	LibraryEnv = "FAAS_INFER_ONNXRUNTIME"
	// LibraryVersion is the version for CPUs that faas-infer setup fetches.
	LibraryVersion = "1.32.0"
	// CUDAVersion is the version for GPUs, which has releases of its own.
	CUDAVersion = "1.31.1"
)

// ErrNoLibrary is wrapped by Load's error when there is no library file.
var ErrNoLibrary = errors.New("the ONNX Runtime library is missing")

// library is the process's one loaded library; ONNX Runtime has one
// environment per process.
var library struct {
	sync.Mutex
	loaded   bool
	path     string
	duration time.Duration
}

// LibraryPath returns the default path of the library: $FAAS_INFER_ONNXRUNTIME if it is
// set, otherwise a file below faas-infer's folder in the user's cache.
func LibraryPath() (string, error) {
	if path := os.Getenv(LibraryEnv); path != "" {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w: %s is not set and there is no cache folder: %w", ErrNoLibrary, LibraryEnv, err)
	}
	return libraryIn(cache), nil
}

// libraryIn returns the path of the library in a user's cache.
func libraryIn(cache string) string {
	return filepath.Join(cache, "faas-infer", "onnxruntime", LibraryVersion, "libonnxruntime.so")
}

// Load loads the library into the process, from LibraryPath if path is empty, without its
// telemetry.
// Further calls do nothing. An error says how to get the library, or that it is too
// old.
func Load(path string) error {
	library.Lock()
	defer library.Unlock()
	if library.loaded {
		return nil
	}
	if path == "" {
		var err error
		if path, err = LibraryPath(); err != nil {
			return err
		}
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%w (run `faas-infer setup`, or set %s): %w", ErrNoLibrary, LibraryEnv, err)
	}
	if err := engine.DisableTelemetry(); err != nil {
		return err
	}
	start := time.Now()
	ort.SetSharedLibraryPath(path)
	if err := ort.InitializeEnvironment(); err != nil {
		return fmt.Errorf("ONNX Runtime library %s, tested version %s: %w", path, LibraryVersion, err)
	}
	if err := ort.DisableTelemetry(); err != nil { // In case that a later version does not heed the variable.
		return fmt.Errorf("ONNX Runtime library %s: turn its telemetry off: %w", path, err)
	}
	library.loaded, library.path, library.duration = true, path, time.Since(start)
	return nil
}

// LibraryTime returns how long Load took, 0 before Load.
func LibraryTime() time.Duration {
	library.Lock()
	defer library.Unlock()
	return library.duration
}

// Version returns the loaded library's own version, "" before Load.
func Version() string {
	library.Lock()
	defer library.Unlock()
	if !library.loaded {
		return ""
	}
	return ort.GetVersion()
}

// Name returns the engine's name and version, as profiles carry it.
func Name() string { return "onnxruntime " + LibraryVersion }

// CUDAName is Name of the engine on GPUs.
func CUDAName() string { return "onnxruntime " + CUDAVersion + " cuda" }
