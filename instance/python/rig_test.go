package python_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance/logtest"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/model/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write makes a bundle of files; "bundle.yaml" is completed with a name.
func write(t testing.TB, files map[string]string) (manifest string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if name == "bundle.yaml" {
			text = "name: test\n" + text
		}
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "bundle.yaml")
}

func prepare(t testing.TB, manifest string) python.Prepared {
	t.Helper()
	dir, err := python.Prepare(t.Context(), manifest, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p, err := python.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const handlerManifest = "engine: python\nhandler: handler.py\n"

// handler prepares a bundle of a handler alone.
func handler(t testing.TB, source string) python.Prepared {
	t.Helper()
	return prepare(t, write(t, map[string]string{"bundle.yaml": handlerManifest, "handler.py": source}))
}

// log gathers what a process prints, to a file as processes need it.
type log struct {
	logtest.Log
	file *os.File
}

func newLog(t testing.TB) *log {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l := &log{file: w}
	var reader sync.WaitGroup
	reader.Go(func() {
		_, _ = io.Copy(&l.Log, r)
		r.Close()
	})
	t.Cleanup(func() {
		w.Close()
		reader.Wait()
	})
	return l
}

// serve opens an engine and returns its log. It closes the engine at the end of the test.
func serve(t testing.TB, p python.Prepared, change ...func(*python.Options)) (*python.Engine, *log) {
	t.Helper()
	e, l, err := tryServe(t, p, change...)
	if err != nil {
		t.Fatalf("%v\n%s", err, l)
	}
	return e, l
}

func tryServe(t testing.TB, p python.Prepared, change ...func(*python.Options)) (*python.Engine, *log, error) {
	t.Helper()
	l := newLog(t)
	o := python.Options{Prepared: p, Threads: 1, Log: l.file, Logger: zerolog.New(io.Discard)}
	for _, c := range change {
		c(&o)
	}
	e, err := python.Open(context.Background(), o)
	if err != nil {
		return nil, l, err
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e, l, nil
}

// floats is an input of rows of one.
func floats(name string, values ...float32) []tensor.Tensor {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return []tensor.Tensor{{Name: name, Type: tensor.FP32, Shape: []int64{int64(len(values)), 1}, Data: data}}
}

func values(ts tensor.Tensor) (out []float32) {
	for i := 0; i+4 <= len(ts.Data); i += 4 {
		out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(ts.Data[i:])))
	}
	return out
}
