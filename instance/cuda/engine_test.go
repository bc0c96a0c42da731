package cuda

import (
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// onModel makes Open use a model of the driver, with ONNX Runtime on the CPU.
func onModel(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "libcuda.so.1")
	if said, err := exec.Command("gcc", "-shared", "-fPIC", "-O1", "-o", file, "testdata/driver.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	before := driver
	driver = file
	t.Cleanup(func() { driver = before })
}

func zooFile(t *testing.T, name string) (string, *model.Model) {
	t.Helper()
	m, err := zoo.Make(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name+".onnx")
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	return file, m
}

// With a model of the driver, models answer as on the CPU, whatever the number of rows.
func TestRun(t *testing.T) {
	onModel(t)
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mnist", "textcnn-69", "ssd", "bert-small", "lstm-2365"} {
		t.Run(name, func(t *testing.T) {
			file, m := zooFile(t, name)
			e, err := Open(Options{Model: file, MaxBatch: 6, onHost: true})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			cpu, err := onnxruntime.Open(onnxruntime.Options{Model: file, Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer cpu.Close()
			for i, rows := range []int{1, 3, 6, 3, 6, 1, 5, 2} {
				if i == 4 {
					if err := e.Wait(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				inputs, err := m.SampleInputs(rows, uint64(rows))
				if err != nil {
					t.Fatal(err)
				}
				got, err := e.Run(t.Context(), rows, inputs)
				if err != nil {
					t.Fatal(err)
				}
				want, err := cpu.Run(t.Context(), rows, inputs)
				if err != nil {
					t.Fatal(err)
				}
				for i := range want {
					if d := Difference(got[i], want[i]); d > 1e-5 || math.IsNaN(d) {
						t.Errorf("%d rows, %q differs by %g", rows, want[i].Name, d)
					}
				}
			}
			if err := e.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Log(e.Graphs(), e.WhyNot(), e.Stages(), e.Times())
			if m, err := e.Memory(); err != nil || m <= 0 {
				t.Errorf("%d bytes, %v", m, err)
			}
		})
	}
}

// A graph that frees the memory that it allocates is launched. One that does not can be launched
// only once, so runs stay plain.
func TestGraphs(t *testing.T) {
	onModel(t)
	file, _ := zooFile(t, "mnist")
	for nodes, want := range map[string]string{
		"0 2 5":         "",
		"0 10 0 11":     "",
		"10 0 11 10 11": "",
		"0 10 0":        "a node allocates memory that no node frees",
		"0 11":          "a node frees memory that no node allocates",
		"0 4":           "a node has the type graph (4)",
		"0 99":          "a node has the type unknown (99)",
		"":              "cuStreamEndCapture",
	} {
		t.Setenv("MODEL_GRAPH", nodes)
		e, err := Open(Options{Model: file, MaxBatch: 2, onHost: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if got := e.WhyNot(); e.Graphs() != (want == "") || !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: graphs %t, %q", nodes, e.Graphs(), got)
		}
		if got := e.Nodes()[2]["allocate"]; got != strings.Count(nodes, "10") {
			t.Errorf("%s: %v", nodes, e.Nodes())
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// After a fault on the GPU the context cannot be used: the batch's requests do not run again, and the
// process learns that it must end. Inputs that are not the model's end nothing.
func TestFault(t *testing.T) {
	onModel(t)
	for _, name := range []string{"mnist", "lstm-2365"} { // With lanes apart, and with one.
		file, m := zooFile(t, name)
		e, err := Open(Options{Model: file, MaxBatch: 2, Plain: name != "mnist", onHost: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		inputs, err := m.SampleInputs(1, 1)
		if err != nil {
			t.Fatal(err)
		}
		isLost := func(err error) bool {
			var l interface{ Lost() bool }
			return errors.As(err, &l) && l.Lost()
		}
		if _, err := e.Run(t.Context(), 2, inputs); err == nil || isLost(err) || len(e.Failed()) != 0 {
			t.Errorf("%s: other inputs: %v", name, err)
		}
		t.Setenv("MODEL_FAULT", "1")
		for range 2 {
			if _, err := e.Run(t.Context(), 1, inputs); !isLost(err) || !strings.Contains(err.Error(), "cuEventSynchronize") {
				t.Errorf("%s: %v", name, err)
			}
		}
		select {
		case err := <-e.Failed():
			if !strings.Contains(err.Error(), "700") {
				t.Errorf("%s: %v", name, err)
			}
		default:
			t.Errorf("%s: nobody learns of it", name)
		}
		t.Setenv("MODEL_FAULT", "")
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if _, err := e.Run(t.Context(), 1, inputs); err == nil {
			t.Error("a closed engine runs")
		}
	}
}

// Close may come while batch sizes are prepared and runs wait. It gives all memory of the device back, as
// does an Open that fails.
func TestCloseEarly(t *testing.T) {
	onModel(t)
	t.Setenv("MODEL_GRAPH", "0")
	for _, name := range []string{"mnist", "textcnn-69"} {
		file, m := zooFile(t, name)
		inputs, err := m.SampleInputs(3, 1)
		if err != nil {
			t.Fatal(err)
		}
		free := int64(0)
		for n := range 12 {
			e, err := Open(Options{Model: file, MaxBatch: 32, onHost: true})
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				free = e.baseline
			}
			if e.baseline != free {
				t.Fatalf("%s: %d bytes are free, %d were before", name, e.baseline, free)
			}
			var runs sync.WaitGroup
			for range 3 {
				runs.Go(func() { _, _ = e.Run(t.Context(), 3, inputs) })
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*time.Millisecond)
			_ = e.Wait(ctx)
			cancel()
			if err := errors.Join(e.Close(), e.Close()); err != nil {
				t.Error(err)
			}
			runs.Wait()
			if len(e.Failed()) > 0 {
				t.Errorf("%s: the GPU failed: %v", name, <-e.Failed())
			}
			if _, err := Open(Options{Model: file + ".missing", MaxBatch: 32, onHost: true}); err == nil {
				t.Error("it opens a model that is missing")
			}
			t.Setenv("MODEL_FAULT", "1")
			if _, err := Open(Options{Model: file, MaxBatch: 32, onHost: true}); err == nil {
				t.Error("it opens although the first run fails")
			}
			t.Setenv("MODEL_FAULT", "")
		}
	}
}

// Without a driver the error wraps ErrDevice and says what is needed.
func TestNoDriver(t *testing.T) {
	file, _ := zooFile(t, "mnist")
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		t.Log("this machine has a GPU")
	}
	_, err := Open(Options{Model: file, MaxBatch: 1})
	if err != nil && (!strings.Contains(err.Error(), "libcuda.so.1") && !strings.Contains(err.Error(), "CUDA") || !strings.Contains(err.Error(), onnxruntime.CUDAVersion)) {
		t.Errorf("%v", err)
	}
	t.Log(err)
}

// keepSignals restores a handler that a library has changed.
func TestKeepSignals(t *testing.T) {
	const n = int(syscall.SIGUSR2)
	var before, changed, after action
	if err := sigaction(n, nil, &before); err != nil {
		t.Fatal(err)
	}
	restore := keepSignals()
	if err := errors.Join(sigaction(n, &action{handler: ignored}, nil), sigaction(n, nil, &changed)); err != nil || changed == before {
		t.Fatalf("%+v, %v", changed, err)
	}
	if err := errors.Join(restore(), sigaction(n, nil, &after)); err != nil || after != before {
		t.Errorf("%+v, before %+v, %v", after, before, err)
	}
}

// A burner gives its memory of the device back.
func TestBurnerClose(t *testing.T) {
	onModel(t)
	file, _ := zooFile(t, "mnist")
	free := func() int64 {
		e, err := Open(Options{Model: file, MaxBatch: 1, onHost: true})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		return e.baseline
	}
	before := free()
	b, err := OpenBurner()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Run(1); err != nil {
		t.Error(err)
	}
	b.Close()
	b.Close()
	if now := free(); now != before {
		t.Errorf("%d bytes are free, %d were before", now, before)
	}
}

// Inputs that are not the model's are refused as on the CPU, and the next batch is answered.
func TestRefusedInputs(t *testing.T) {
	onModel(t)
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mnist", "bert-small"} {
		file, m := zooFile(t, name)
		e, err := Open(Options{Model: file, MaxBatch: 4, onHost: true})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		cpu, err := onnxruntime.Open(onnxruntime.Options{Model: file, Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer cpu.Close()
		for what, spoil := range map[string]func(rows *int, in []tensor.Tensor) []tensor.Tensor{
			"no rows": func(rows *int, in []tensor.Tensor) []tensor.Tensor {
				*rows, in[0].Shape[0], in[0].Data = 0, 0, nil
				return in
			},
			"too few rows": func(rows *int, in []tensor.Tensor) []tensor.Tensor { *rows = 3; return in },
			"no shape":     func(_ *int, in []tensor.Tensor) []tensor.Tensor { in[0].Shape = nil; return in },
			"more dimensions": func(_ *int, in []tensor.Tensor) []tensor.Tensor {
				in[0].Shape = append(in[0].Shape, 1)
				return in
			},
			"overflow": func(_ *int, in []tensor.Tensor) []tensor.Tensor {
				in[0].Shape[len(in[0].Shape)-1] = 1 << 62
				return in
			},
			"negative": func(_ *int, in []tensor.Tensor) []tensor.Tensor {
				in[0].Shape[len(in[0].Shape)-1] = -1
				return in
			},
			"nothing in a row": func(_ *int, in []tensor.Tensor) []tensor.Tensor {
				in[0].Shape[len(in[0].Shape)-1], in[0].Data = 0, nil
				return in
			},
			"less data":    func(_ *int, in []tensor.Tensor) []tensor.Tensor { in[0].Data = in[0].Data[1:]; return in },
			"no data":      func(_ *int, in []tensor.Tensor) []tensor.Tensor { in[0].Data = nil; return in },
			"another type": func(_ *int, in []tensor.Tensor) []tensor.Tensor { in[0].Type = tensor.FP64; return in },
			"no type":      func(_ *int, in []tensor.Tensor) []tensor.Tensor { in[0].Type = ""; return in },
			"one too many": func(_ *int, in []tensor.Tensor) []tensor.Tensor { return append(in, in[0]) },
			"none":         func(_ *int, in []tensor.Tensor) []tensor.Tensor { return nil },
		} {
			for _, engine := range []interface {
				Run(context.Context, int, []tensor.Tensor) ([]tensor.Tensor, error)
			}{e, cpu} {
				inputs, err := m.SampleInputs(2, 1)
				if err != nil {
					t.Fatal(err)
				}
				rows := 2
				inputs = spoil(&rows, inputs)
				if _, err := engine.Run(t.Context(), rows, inputs); err == nil {
					t.Errorf("%s, %s: %T answers", name, what, engine)
				}
			}
		}
		inputs, err := m.SampleInputs(2, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Run(t.Context(), 2, inputs); err != nil || len(e.Failed()) > 0 {
			t.Errorf("%s: afterwards: %v", name, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := e.Run(ctx, 2, inputs); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: cancelled: %v", name, err)
		}
	}
}
