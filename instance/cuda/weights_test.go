package cuda

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
)

// kept makes a copy of a model in dir, and returns the model's file.
func kept(t *testing.T, name, dir string) string {
	t.Helper()
	file, _ := zooFile(t, name)
	e := opened(t, file, dir)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

// opened is an engine that has prepared its batch sizes.
func opened(t *testing.T, file, dir string) *Engine {
	t.Helper()
	e, err := Open(Options{Model: file, MaxBatch: 4, Copies: dir, onHost: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	if err := e.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

// answers fails if the engine's answers differ from the CPU's.
func answers(t *testing.T, e *Engine, name string) {
	t.Helper()
	if d := fromCPU(t, e, name); d > 1e-5 {
		t.Errorf("%s differs by %g", name, d)
	}
}

// fromCPU is the difference of three rows' answers from the CPU's.
func fromCPU(t *testing.T, e *Engine, name string) (difference float64) {
	t.Helper()
	file, m := zooFile(t, name)
	cpu, err := onnxruntime.Open(onnxruntime.Options{Model: file, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer cpu.Close()
	inputs, err := m.SampleInputs(3, 1)
	if err != nil {
		t.Fatal(err)
	}
	want, err := cpu.Run(t.Context(), 3, inputs)
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.Run(t.Context(), 3, inputs)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		difference = max(difference, Difference(got[i], want[i]))
	}
	return difference
}

// The weights of a copy are on the device once, for all sessions of all engines that have it. They stay as
// long as one engine has them, and another one passes them on if the first ends.
func TestWeightsAreShared(t *testing.T) {
	onModel(t)
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mnist", "bert-small"} {
		dir := t.TempDir()
		file := kept(t, name, dir)
		first := opened(t, file, dir)
		if w := first.Weights(); w.Bytes == 0 || w.Imported || w.Alone != "" {
			t.Fatalf("%s: %+v", name, w)
		}
		second := opened(t, file, dir)
		if w := second.Weights(); !w.Imported || w.Bytes != first.Weights().Bytes {
			t.Errorf("%s, second: %+v", name, w)
		}
		own, err := first.Memory()
		if err != nil {
			t.Fatal(err)
		}
		more, err := second.Memory()
		if err != nil || more > own-first.Weights().Bytes {
			t.Errorf("%s: the second engine holds %d bytes, the first %d of which %d are weights; %v", name, more, own, first.Weights().Bytes, err)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		answers(t, second, name)
		var third *Engine
		for until := time.Now().Add(time.Minute); third == nil || !third.Weights().Imported; {
			if third != nil {
				_ = third.Close()
			}
			if time.Now().After(until) {
				t.Fatalf("%s: nobody passes the weights on", name)
			}
			third = opened(t, file, dir)
		}
		answers(t, third, name)
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
		answers(t, third, name)
	}
}

// Without memory that can be shared, or a directory that can be written, an engine has weights of its own.
func TestWeightsAlone(t *testing.T) {
	onModel(t)
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := kept(t, "mnist", dir)
	check := func(why string) {
		t.Helper()
		e := opened(t, file, dir)
		if w := e.Weights(); w.Bytes == 0 || w.Imported || w.Alone == "" {
			t.Errorf("%s: %+v", why, w)
		}
		answers(t, e, "mnist")
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("MODEL_ALONE", "1")
	check("the driver cannot")
	t.Setenv("MODEL_ALONE", "")
	locks, err := filepath.Glob(filepath.Join(dir, "weights-*.lock"))
	if err != nil || len(locks) != 1 {
		t.Fatal(locks, err)
	}
	if err := os.Remove(locks[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(locks[0], 0o700); err != nil {
		t.Fatal(err)
	}
	check("there is no lock")
}

// A session that is opened after the copy has gone loads the model itself. The next copy's maker removes
// what a killed process left.
func TestCopyHasGone(t *testing.T) {
	onModel(t)
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	left := filepath.Join(dir, ".cuda-1")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(left, old, old); err != nil {
		t.Fatal(err)
	}
	e := opened(t, kept(t, "mnist", dir), dir)
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", left, err)
	}
	if err := os.RemoveAll(e.copy.dir); err != nil {
		t.Fatal(err)
	}
	l, err := e.laneFor(4)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
}

// Requests run while an engine makes the copy and reads its weights from then on.
func TestRunsWhileTheCopyIsMade(t *testing.T) {
	onModel(t)
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	file, m := zooFile(t, "mnist")
	e, err := Open(Options{Model: file, MaxBatch: 4, Copies: t.TempDir(), onHost: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	inputs, err := m.SampleInputs(3, 1)
	if err != nil {
		t.Fatal(err)
	}
	now, cancel := context.WithCancel(t.Context())
	cancel()
	for done := false; !done; {
		done = e.Wait(now) == nil
		if _, err := e.Run(t.Context(), 3, inputs); err != nil {
			t.Fatal(err)
		}
	}
	if w := e.Weights(); w.Bytes == 0 || w.Problem != "" {
		t.Errorf("%+v", w)
	}
}
