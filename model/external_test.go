package model_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// Weights that are linked out of the model's directory are neither read nor hashed, and the error
// says what to do.
func TestWeightsOutsideAreNotRead(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, make([]byte, 32), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, put := range map[string]func(weights string) error{
		"a link":         func(weights string) error { return os.Symlink(outside, weights) },
		"a link by dots": func(weights string) error { return os.Symlink("../../../../../../../../etc/passwd", weights) },
		"a pipe":         func(weights string) error { return syscall.Mkfifo(weights, 0o644) },
		"a directory":    func(weights string) error { return os.Mkdir(weights, 0o755) },
	} {
		path := external(t, "weights.bin", "0")
		weights := filepath.Join(filepath.Dir(path), "weights.bin")
		if err := errors.Join(os.Remove(weights), put(weights)); err != nil {
			t.Fatal(err)
		}
		_, hash := model.ContentHash(path)
		_, whole := model.ReadFile(path)
		_, outline := model.ReadOutline(path)
		_, names := model.ExternalFiles(path)
		for i, err := range []error{hash, whole, outline, names} {
			if !errors.Is(err, model.ErrExternalData) || !strings.Contains(err.Error(), "beside the model") || strings.Contains(err.Error(), outside) {
				t.Errorf("%s, reader %d: %v", name, i, err)
			}
		}
	}
}

// Links within the model's directory are followed, and so are those of a cache in which the model
// itself is a link, too.
func TestWeightsByLink(t *testing.T) {
	path := external(t, "weights.bin", "0")
	dir := filepath.Dir(path)
	want, err := model.ContentHash(path)
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	if err := errors.Join(os.Rename(filepath.Join(dir, "weights.bin"), filepath.Join(dir, "w0")), os.Symlink("w0", filepath.Join(dir, "weights.bin")),
		os.Symlink(path, filepath.Join(cache, "m.onnx")), os.Symlink(filepath.Join(dir, "w0"), filepath.Join(cache, "weights.bin"))); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, filepath.Join(cache, "m.onnx")} {
		if got, err := model.ContentHash(path); err != nil || got != want {
			t.Errorf("%s: hash %s, %v, want %s", path, got, err, want)
		}
		if _, err := model.ReadFile(path); err != nil {
			t.Error(err)
		}
	}
}

// External weights are found wherever they are in a model, each file once.
func TestExternalFiles(t *testing.T) {
	at := func(name string) *onnxpb.TensorProto {
		key := "location"
		return &onnxpb.TensorProto{
			Name: &name, DataLocation: onnxpb.TensorProto_EXTERNAL.Enum(), ExternalData: []*onnxpb.StringStringEntryProto{{Key: &key, Value: &name}},
		}
	}
	within := at("within")
	within.DataLocation = onnxpb.TensorProto_DEFAULT.Enum()
	branch := &onnxpb.GraphProto{Initializer: []*onnxpb.TensorProto{at("branch"), at("shared")}}
	node := &onnxpb.NodeProto{Attribute: []*onnxpb.AttributeProto{
		{T: at("constant"), Tensors: []*onnxpb.TensorProto{at("list")}}, {G: branch, Graphs: []*onnxpb.GraphProto{{Initializer: []*onnxpb.TensorProto{at("case")}}}},
		{SparseTensor: &onnxpb.SparseTensorProto{Values: at("sparse"), Indices: at("indices")}},
	}}
	b, err := proto.Marshal(&onnxpb.ModelProto{
		IrVersion: proto.Int64(8),
		Graph: &onnxpb.GraphProto{
			Node: []*onnxpb.NodeProto{node}, Output: []*onnxpb.ValueInfoProto{{Name: proto.String("y")}},
			Initializer: []*onnxpb.TensorProto{at("shared"), within, at("shared"), at("sub/own")},
		},
		Functions: []*onnxpb.FunctionProto{{Node: []*onnxpb.NodeProto{{Attribute: []*onnxpb.AttributeProto{{T: at("function")}}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	want := []string{"constant", "list", "branch", "shared", "case", "sparse", "indices", "sub/own", "function"}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "sub"), 0o755), os.WriteFile(filepath.Join(dir, "m.onnx"), b, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, name := range want {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := model.ExternalFiles(filepath.Join(dir, "m.onnx")); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// What is written piece by piece has the hash of the file. The hash of a file with its weights elsewhere has these, too.
func TestHasher(t *testing.T) {
	path := external(t, "weights.bin", "0")
	for _, c := range []struct {
		name  string
		bytes []byte
		whole bool
	}{{"weights.onnx", []byte("no weights elsewhere"), true}, {filepath.Base(path), nil, false}} {
		file := filepath.Join(filepath.Dir(path), c.name)
		if c.bytes != nil {
			if err := os.WriteFile(file, c.bytes, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		all, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		h := model.NewHasher()
		for b := range slices.Chunk(all, 3) {
			_, _ = h.Write(b)
		}
		if want, err := model.ContentHash(file); err != nil || h.Whole() != c.whole || (h.Sum() == want) != c.whole {
			t.Errorf("%s: %s, whole %v; want %s, %v", c.name, h.Sum(), h.Whole(), want, err)
		}
	}
}

// A hash takes little memory, whatever the file holds.
func TestHashInLittleMemory(t *testing.T) {
	path := external(t, "weights.bin", "0")
	m, err := model.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := proto.CloneOf(m.Proto())
	for range 100_000 { // Each takes some hundred bytes when it is decoded, and seven in the file.
		p.Graph.Node = append(p.Graph.Node, &onnxpb.NodeProto{OpType: proto.String("A")})
	}
	small := external(t, "weights.bin", "0")
	b, err := proto.Marshal(p)
	if err == nil {
		err = os.WriteFile(path, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	took := func(path string) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := model.ContentHash(path); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if few, many := took(small), took(path); many > few+256<<10 {
		t.Errorf("the hash of a small model allocates %d bytes, that of one with 100,000 operators %d", few, many)
	}
}

// FuzzExternalFiles walks through any bytes without a panic and without end.
func FuzzExternalFiles(f *testing.F) {
	for _, name := range []string{"identity", "textcnn"} {
		b := encoded(f, name)
		f.Add(b[:min(len(b), 4096)])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "m.onnx")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		_, _ = model.ExternalFiles(path)
	})
}
