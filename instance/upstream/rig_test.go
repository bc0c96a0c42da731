package upstream_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance/logtest"
	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// scratch is a directory for as long as the tests run.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "faas-infer-upstream-"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(scratch); err != nil {
			panic(err)
		}
		os.Exit(code)
	}))
}

// write makes a bundle of files, with these contents; a content that begins with @ is
// that of a file of testdata.
func write(t testing.TB, files map[string]string) (manifest string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if from, ok := strings.CutPrefix(text, "@"); ok {
			content, err := os.ReadFile(filepath.Join("testdata", from))
			if err != nil {
				t.Fatal(err)
			}
			text = string(content)
		}
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "bundle.yaml")
}

func prepare(t testing.TB, manifest string) upstream.Prepared {
	t.Helper()
	dir, err := upstream.Prepare(t.Context(), manifest, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p, err := upstream.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// serve opens an engine; its end is the test's.
func serve(t testing.TB, p upstream.Prepared, change ...func(*upstream.Options)) (*upstream.Engine, *logtest.Log) {
	t.Helper()
	e, l, err := tryServe(t, p, change...)
	if err != nil {
		t.Fatalf("%v\n%s", err, l)
	}
	return e, l
}

func tryServe(t testing.TB, p upstream.Prepared, change ...func(*upstream.Options)) (*upstream.Engine, *logtest.Log, error) {
	t.Helper()
	l := &logtest.Log{}
	o := upstream.Options{Prepared: p, Threads: 1, MaxBatch: 8, Log: l, Logger: zerolog.New(l)}
	for _, c := range change {
		c(&o)
	}
	e, err := upstream.Open(context.Background(), o)
	// The server's ports were free; anybody's connection may have got one while it started.
	for try := 0; try < 3 && err != nil && strings.Contains(strings.ToLower(l.String()), "already in use"); try++ {
		e, err = upstream.Open(context.Background(), o)
	}
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

// floats is an input of rows with two numbers each.
func floats(name string, values ...float32) tensor.Tensor {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return tensor.Tensor{Name: name, Type: tensor.FP32, Shape: []int64{int64(len(values)) / 2, 2}, Data: data}
}

func values(ts tensor.Tensor) (out []float32) {
	for i := 0; i+4 <= len(ts.Data); i += 4 {
		out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(ts.Data[i:])))
	}
	return out
}

// lost reports whether an error says that the server was lost with the batch.
func lost(err error) bool {
	var l interface{ Lost() bool }
	return errors.As(err, &l) && l.Lost()
}
