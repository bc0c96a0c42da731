package python_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/model/tensor"
)

var (
	_ instance.Engine        = (*python.Engine)(nil)
	_ instance.RequestEngine = (*python.Engine)(nil)
)

// head declares a float in and a float out.
const head = `
inputs = {"x": ("float32", [1])}
outputs = {"y": ("float32", [1])}
`

func TestOneCallForABatch(t *testing.T) {
	e, l := serve(t, handler(t, head+`
import numpy as np
def load(path):
    print("loading", path)
def handle(batch):
    print("batch of", [len(r["x"]) for r in batch])
    return [{"y": 2 * r["x"]} for r in batch]
`))
	if got := e.Inputs(); len(got) != 1 || got[0].Name != "x" || got[0].Type != tensor.FP32 || !slices.Equal(got[0].Shape, []int64{-1, 1}) {
		t.Errorf("inputs %v", got)
	}
	outputs, failed, err := e.RunRequests(t.Context(), []int{1, 2}, floats("x", 1, 2, 3))
	if err != nil || failed[0] != nil || failed[1] != nil {
		t.Fatal(err, failed)
	}
	if got := [][]float32{values(outputs[0][0]), values(outputs[1][0])}; !slices.Equal(got[0], []float32{2}) || !slices.Equal(got[1], []float32{4, 6}) {
		t.Errorf("outputs %v", got)
	}
	l.Await(t, "loading ", 1)
	l.Await(t, "batch of [1, 2]\n", 1)
}

// A failing request gets its own error.
func TestErrorsOfRequests(t *testing.T) {
	e, l := serve(t, handler(t, head+`
def handle(batch):
    if batch[0]["x"][0, 0] == 9:
        raise ValueError("nines are not\nwanted")
    out = {
        1: lambda x: x,
        2: lambda x: KeyError("two"),
        3: lambda x: {"z": x},
        4: lambda x: x.astype("float64"),
        5: lambda x: x[:0],
        6: lambda x: x.reshape(1, 1, 1),
        7: lambda x: "text",
    }
    return [out[int(r["x"][0, 0])](r["x"]) for r in batch]
`))
	_, failed, err := e.RunRequests(t.Context(), []int{1, 1, 1, 1, 1, 1, 1}, floats("x", 1, 2, 3, 4, 5, 6, 7))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", "KeyError: 'two'", `no 'y' for a request, but z`, "as float64, and it is float32",
		"shape [0, 1] for a request of 1 rows", "shape [1, 1, 1]", "shape [] for a request"} {
		if want == "" && failed[i] != nil || want != "" && (failed[i] == nil || !strings.Contains(failed[i].Error(), want)) {
			t.Errorf("request %d: %v, want %q", i, failed[i], want)
		}
	}
	if _, err = e.Run(t.Context(), 1, floats("x", 9)); err == nil || err.Error() != "ValueError: nines are not" {
		t.Errorf("%v", err)
	}
	l.Await(t, "Traceback", 1)
	l.Await(t, `raise ValueError("nines are not\nwanted")`, 1)
	if lost(err) {
		t.Error("the process is said to be lost")
	}
}

func lost(err error) bool {
	var l interface{ Lost() bool }
	return errors.As(err, &l)
}

func TestWrongNumberOfAnswers(t *testing.T) {
	e, _ := serve(t, handler(t, head+`
def handle(batch):
    return [] if batch[0]["x"][0, 0] else None
`))
	for value, want := range map[float32]string{1: "handle gave 0 answers for a batch of 1", 0: "handle gave NoneType for a batch of 1"} {
		if _, err := e.Run(t.Context(), 1, floats("x", value)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A fault that ends the process fails its batch and no other.
func TestContainment(t *testing.T) {
	p := handler(t, head+`
import os, signal, subprocess, sys, time
kept = []
def handle(batch):
    what = int(batch[0]["x"][0, 0])
    if what == 1: time.sleep(1000)
    if what == 2: os._exit(3)
    if what == 3: os.kill(os.getpid(), signal.SIGSEGV)
    while what == 4: kept.append(bytearray(b"x") * (16 << 20))
    if what == 6: sys.stdout.write("{}" * 100000)
    return [r["x"] for r in batch]
`)
	// What stops has little time, what does not has as much as a busy machine takes.
	hurried, _ := serve(t, p, func(o *python.Options) { o.Timeout = time.Second })
	e, _ := serve(t, p, func(o *python.Options) { o.Timeout = 2 * time.Minute; o.MemoryLimit = 256 << 20 })
	answer := func(e *python.Engine) {
		t.Helper()
		if out, err := e.Run(t.Context(), 1, floats("x", 0)); err != nil || values(out[0])[0] != 0 {
			t.Fatalf("the next batch: %v", err)
		}
	}
	for _, c := range []struct {
		by   *python.Engine
		what float32
		want string
		lost bool
	}{
		{hurried, 1, "did not answer in time", true}, {e, 2, "exited with status 3", true}, {e, 3, "SIGSEGV", true},
		{e, 4, "ran out of memory and was stopped (limit 256 MiB)", true}, {e, 6, "", false},
	} {
		answer(c.by) // The first batch of a process may take longer.
		_, err := c.by.Run(t.Context(), 1, floats("x", c.what))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || lost(err) != c.lost {
			t.Errorf("%v: %v, want %q", c.what, err, c.want)
		}
		answer(c.by)
	}
}

// A process near its memory limit is replaced between two batches.
func TestLeak(t *testing.T) {
	e, l := serve(t, handler(t, head+`
kept = []
def load(path): print("loaded")
def handle(batch):
    kept.append(bytearray(b"x") * (24 << 20))
    return [r["x"] for r in batch]
`), func(o *python.Options) { o.MemoryLimit = 256 << 20 })
	for range 24 {
		if _, err := e.Run(t.Context(), 1, floats("x", 1)); err != nil {
			t.Fatal(err)
		}
	}
	l.Await(t, "loaded", 2)
}

func TestWhatCannotBeLoaded(t *testing.T) {
	for name, c := range map[string]struct{ source, want string }{
		"no handle":       {head + "def load(path): pass", "handler.py has no function handle(batch)"},
		"no inputs":       {"def handle(batch): return batch", "handler.py does not tell its inputs"},
		"odd inputs":      {"inputs = ['x']\ndef handle(batch): return batch", "the handler's inputs is ['x']; write it as"},
		"a type":          {"inputs = {'x': ('datetime64', [1])}\ndef handle(batch): return batch", "'x' has the type datetime64"},
		"an import":       {"import nosuchmodule\n" + head, "ModuleNotFoundError: No module named 'nosuchmodule'"},
		"load":            {head + "def handle(batch): return batch\ndef load(path): raise OSError('no weights')", "OSError: no weights"},
		"learned outputs": {"inputs = {'x': ('float32', [1])}\ndef handle(batch): return 1 / 0", "ZeroDivisionError: division by zero"},
		"leaving":         {"import sys; sys.exit(4)", "SystemExit: 4"},
	} {
		t.Run(name, func(t *testing.T) {
			_, l, err := tryServe(t, handler(t, c.source))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q\n%s", err, c.want, l)
			}
		})
	}
}

func TestOutputsAreLearned(t *testing.T) {
	e, _ := serve(t, handler(t, `
inputs = {"x": ("float32", [2, None])}
def handle(batch):
    return [{"sum": r["x"].sum(axis=(1, 2)), "is": r["x"] > 0} for r in batch]
`))
	got := e.Outputs()
	if len(got) != 2 || got[0].Name != "sum" || got[0].Type != tensor.FP32 || got[1].Type != tensor.Bool {
		t.Errorf("outputs %v", got)
	}
}
