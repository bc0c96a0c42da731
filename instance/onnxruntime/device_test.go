package onnxruntime

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// Without CUDA or a GPU the error wraps ErrDevice and says what is needed. A model that
// cannot be loaded gives another error.
func TestNoCUDA(t *testing.T) {
	file := zooFile(t, "mnist")
	_, err := Open(Options{Model: file, Threads: 1, Device: CUDA})
	if !errors.Is(err, ErrDevice) || !strings.Contains(err.Error(), "the GPU build of ONNX Runtime "+LibraryVersion) || !strings.Contains(err.Error(), "ONNX Runtime: ") {
		t.Errorf("%v", err)
	}
	if _, err := Open(Options{Prepared: t.TempDir(), Threads: 1, Device: CUDA}); !errors.Is(err, ErrDevice) || !strings.Contains(err.Error(), "prepared model") {
		t.Errorf("%v", err)
	}
	if _, err := Open(Options{Model: file, Threads: 1, Device: "tpu"}); err == nil || !strings.Contains(err.Error(), `the device is "tpu"; it is cpu or cuda`) {
		t.Errorf("%v", err)
	}
	e, err := Open(Options{Model: file, Threads: 1, Device: CPU})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// keepSignals restores a handler that a library has changed.
func TestKeepSignals(t *testing.T) {
	const n = int(syscall.SIGUSR2)
	var before, changed, after action
	if err := sigaction(n, nil, &before); err != nil {
		t.Fatal(err)
	}
	restore := keepSignals()
	const ignore = 1 // SIG_IGN
	if err := errors.Join(sigaction(n, &action{handler: ignore}, nil), sigaction(n, nil, &changed)); err != nil || changed == before {
		t.Fatalf("%+v, %v", changed, err)
	}
	if err := errors.Join(restore(), sigaction(n, nil, &after)); err != nil || after != before {
		t.Errorf("%+v, before %+v, %v", after, before, err)
	}
}
