package operator_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/savedmodel"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// saved is a SavedModel that TensorFlow made.
func saved(t *testing.T, name string) *savedmodel.Model {
	t.Helper()
	f, err := os.Open(filepath.Join("../../model/savedmodel/testdata", name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir, archive := t.TempDir(), tar.NewReader(plain)
	for {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		data, readErr := io.ReadAll(archive)
		path := filepath.Join(dir, filepath.FromSlash(entry.Name))
		if err := errors.Join(err, readErr, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := savedmodel.Read(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A TensorFlow model has the same kind of graph as an ONNX model: its shapes grow
// with the batch, its weights are weights, layers that are alike are one operator.
func TestFromGraphsReadsTensorFlow(t *testing.T) {
	for name, want := range map[string]struct {
		operators, nodes int
		weights          int64
	}{
		"dense": {6, 6, 4 * (6*8 + 8 + 8*3 + 3)}, "tf1": {6, 6, 4 * (3*3*4 + 64*3 + 3)}, "textcnn": {24, 26, 4 * (400 + 9*32 + 12 + 12 + 1)},
	} {
		g, err := operator.FromGraphs(saved(t, name).Graph)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(g.Operators) != want.operators || len(g.Nodes) != want.nodes || len(g.Unknown) > 0 {
			t.Errorf("%s: %d operators, %d nodes, unknown %v, want %+v", name, len(g.Operators), len(g.Nodes), g.Unknown, want)
		}
		// Small numbers that are compared with are weights, too.
		if got := g.WeightBytes(); got < want.weights || got > want.weights+100 {
			t.Errorf("%s: %d bytes of weights, want %d", name, got, want.weights)
		}
	}
}

func TestFromGraphsKeys(t *testing.T) {
	g, err := operator.FromGraphs(saved(t, "tf1").Graph)
	if err != nil {
		t.Fatal(err)
	}
	conv := g.Operators[0]
	if want := "tensorflow.Conv2D{T=1 padding=SAME strides=1,2,2,1}(FP32[b,8,8,1] w:FP32[3,3,1,4])->(FP32[b,4,4,4])"; conv.Key() != want {
		t.Errorf("key %s, want %s", conv.Key(), want)
	}
	if f := conv.Features(4); f.FLOPs != 4*4*4*4*9 {
		t.Errorf("features %+v", f)
	}
}

func TestFromGraphsNamesControlFlow(t *testing.T) {
	var unpredictable *operator.Unpredictable
	_, err := operator.FromGraphs(saved(t, "lstm").Graph)
	if !errors.As(err, &unpredictable) || len(unpredictable.Nodes) != 3 || !strings.Contains(err.Error(), "lstm_1/while") {
		t.Errorf("error %v", err)
	}
}
