package processing_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/logtest"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/processing"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// irises are rows whose kinds are 0, 1 and 2.
var irises = []float32{5.1, 3.5, 1.4, 0.2, 5.9, 2.8, 4.2, 1.3, 6.7, 3.0, 5.6, 2.3}

// The template's unchanged function classifies a batch. An invalid request fails alone.
func TestTheTemplatesFunction(t *testing.T) {
	e, _ := opened(t, filepath.Join(template, "function"), 0)
	if got, want := fmt.Sprint(e.Inputs(), e.Outputs()), "[{lengths FP32 [-1 4]}] [{kind INT64 [-1 1]}]"; got != want {
		t.Errorf("the signature is %s, want %s", got, want)
	}
	out, err := e.Run(t.Context(), 3, []tensor.Tensor{of(t, "lengths", tensor.FP32, []int64{3, 4}, irises)})
	if err != nil {
		t.Fatal(err)
	}
	if got := values[int64](t, out[0]); !slices.Equal(got, []int64{0, 1, 2}) || !slices.Equal(out[0].Shape, []int64{3, 1}) {
		t.Errorf("%v of the shape %v", got, out[0].Shape)
	}
	if e.Memory() <= 0 || e.ProcessorTime() <= 0 || e.LoadTime() <= 0 {
		t.Errorf("it holds %d bytes, has used %v and took %v", e.Memory(), e.ProcessorTime(), e.LoadTime())
	}
	server, err := instance.NewServer(e, instance.Options{Name: "iris", MaxBatch: 8, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(row string) frame.Request {
		return frame.Request{Method: http.MethodPost, Path: "/", Body: []byte(`{"instances": [[` + row + `]]}`)}
	}
	got, _ := server.HandleBatch(t.Context(), []frame.Request{ask("5.1,3.5,1.4,0.2"), ask("-1,0,0,0"), ask("6.7,3.0,5.6,2.3")})
	for i, want := range []string{`200 {"predictions":[[0]]}`, "500 ", `200 {"predictions":[[2]]}`} {
		if text := fmt.Sprintf("%d %s", got[i].Status, got[i].Body); !strings.HasPrefix(text, want) {
			t.Errorf("request %d: %s, want %s", i, text, want)
		}
	}
	if !strings.Contains(string(got[1].Body), "Pre: a length of -1 cm") {
		t.Errorf("the error is %s", got[1].Body)
	}
}

// If the function declares no inputs and outputs, the model's apply.
func TestTheModelsOwnSignature(t *testing.T) {
	e, _ := opened(t, "testdata/own", 0)
	if got, want := fmt.Sprint(e.Inputs(), e.Outputs()), "[{lengths FP32 [-1 4]}] [{species FP32 [-1 3]}]"; got != want {
		t.Errorf("the signature is %s, want %s", got, want)
	}
	out, err := e.Run(t.Context(), 3, []tensor.Tensor{of(t, "lengths", tensor.FP32, []int64{3, 4}, irises)})
	if err != nil || len(values[float32](t, out[0])) != 9 {
		t.Errorf("%v, %v", out, err)
	}
}

// Every fault of a handler gives an error that names it, and the next batch runs.
func TestFaults(t *testing.T) {
	// What stops has little time, what does not has as much as a busy machine takes.
	manifest := built(t, "testdata/faults")
	hurried, _ := openedAt(t, manifest, 3*time.Second)
	e, printed := openedAt(t, manifest, 2*time.Minute)
	run := func(e *processing.Engine, do int32) ([]tensor.Tensor, error) {
		return e.Run(t.Context(), 2, []tensor.Tensor{of(t, "do", tensor.Int32, []int64{2}, []int32{do, 0})})
	}
	well := func(e *processing.Engine) {
		t.Helper()
		out, err := run(e, 0)
		if err != nil || len(out) != 2 || !slices.Equal(out[0].Shape, []int64{2, 3}) || !slices.Equal(out[1].Data, []byte{1, 0}) {
			t.Fatalf("%v, %v", out, err)
		}
	}
	well(e)
	well(hurried) // The first batch may take longer than those after it.
	if _, err := run(hurried, 4); !lost(err) || !strings.Contains(err.Error(), "the handler did not answer in time and was stopped") {
		t.Errorf("what stops: %v", err)
	}
	well(hurried)
	for _, c := range []struct {
		do    int32
		want  string
		fatal bool
	}{
		{1, "Pre: I will not", false},
		{2, "Pre: runtime error: index out of range [9] with length 2 (handler.go:", false},
		{3, "the handler exited with status 3: good bye", true},
		{5, `the handler's Pre: it returned "lengths" as FP64; return FP32`, false},
		{6, `it returned "lengths" with 7 elements, which are not 2 rows of the shape [4]`, false},
		{7, `Pre gave "lengths" as string; a tensor is a slice of bool, uint8`, false},
		{8, `it returned no "lengths"`, false},
		{9, "the handler exited with status 2: panic: out of the blue", true},
		{10, "the handler sent an invalid message and was stopped", true},
	} {
		_, err := run(e, c.do)
		if err == nil || !strings.Contains(err.Error(), c.want) || lost(err) != c.fatal {
			t.Errorf("%d: %v, want %q, lost %v", c.do, err, c.want, c.fatal)
		}
		well(e)
	}
	printed.Await(t, "good bye\n", 1)
	printed.Await(t, "goroutine ", 1)
}

// lost reports whether an error says that the handler's process was lost.
func lost(err error) bool {
	var l interface{ Lost() bool }
	return errors.As(err, &l)
}

// A handler that cannot start fails with the reason.
func TestItCannotBeStarted(t *testing.T) {
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	manifest := built(t, "testdata/own")
	for name, c := range map[string]struct{ script, want string }{
		"ends":     {"#!/bin/sh\necho no licence >&2\nexit 4\n", "the handler exited with status 4: no licence"},
		"nonsense": {"#!/bin/sh\nprintf 'hello there' >&3\nexec sleep 60\n", "the handler sent an invalid message"},
		"no type":  {"#!/bin/sh\nprintf '\\060\\0\\0\\0{\"inputs\":[{\"name\":\"a\",\"datatype\":\"TEXT\"}]}          ' >&3\nexec sleep 60\n", `a tensor "a" of the type "TEXT"`},
		"closes":   {"#!/bin/sh\nexec 3>&-\nexec sleep 60\n", "the handler closed its socket"},
		"no start": {"#!/no/such/shell\n", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := processing.InPlace(manifest)
			if err != nil {
				t.Fatal(err)
			}
			p.Handler = "broken"
			if err := os.WriteFile(filepath.Join(p.Dir, p.Handler), []byte(c.script), 0o755); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(filepath.Join(p.Dir, p.Handler))
			_, err = processing.Open(t.Context(), processing.Options{Prepared: p, Threads: 1, Log: &logtest.Log{}, Logger: zerolog.Nop()})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
