package model_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// encoded is the file of a zoo model.
func encoded(t testing.TB, name string) []byte {
	t.Helper()
	m, err := zoo.Make(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := m.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestWriteIsProtobuf(t *testing.T) {
	b := encoded(t, "textcnn")
	p := new(onnxpb.ModelProto)
	if err := proto.Unmarshal(b, p); err != nil {
		t.Fatal(err)
	}
	m, err := model.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(p, m.Proto()) {
		t.Error("what was written decodes to another model")
	}
	var whole bytes.Buffer
	if err := m.Write(&whole); err != nil || !bytes.Equal(b, whole.Bytes()) {
		t.Errorf("a model with its weights is written in another way than one without (%v)", err)
	}
	if again := encoded(t, "textcnn"); !bytes.Equal(b, again) {
		t.Error("the same model is written in two ways")
	}
}

func TestReadDamaged(t *testing.T) {
	whole := encoded(t, "textcnn")
	noGraph, err := proto.Marshal(&onnxpb.ModelProto{ProducerName: proto.String("x")})
	if err != nil {
		t.Fatal(err)
	}
	noOutput, err := proto.Marshal(&onnxpb.ModelProto{IrVersion: proto.Int64(8), Graph: &onnxpb.GraphProto{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		bytes []byte
		want  error
		words string
	}{
		{"empty", nil, model.ErrNotONNX, "empty"},
		{"text", []byte("hello, this is no model\n"), model.ErrNotONNX, ""},
		{"zip", []byte("PK\x03\x04\x14\x00\x00\x00\x08\x00"), model.ErrNotONNX, ""},
		{"git-lfs", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), model.ErrNotONNX, "git lfs pull"},
		{"no graph", noGraph, model.ErrNotONNX, "no graph"},
		{"no output", noOutput, model.ErrNotONNX, "no output"},
		{"first half", whole[:len(whole)/2], model.ErrTruncated, "copy the file again"},
		{"last byte gone", whole[:len(whole)-1], model.ErrTruncated, "copy the file again"},
		{"only the header", whole[:2], model.ErrTruncated, "copy the file again"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := model.Read(test.bytes)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.words) {
				t.Errorf("got %v, want %v with %q", err, test.want, test.words)
			}
		})
	}
}

func TestReadFileNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "absent.onnx")
	if _, err := model.ReadFile(path); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := model.ReadFile(path); !errors.Is(err, model.ErrNotONNX) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

func TestWriteFileLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	m, err := zoo.Make("identity", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WriteFile(filepath.Join(dir, "m.onnx")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := m.WriteFile(filepath.Join(dir, "taken")); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("left in the directory: %v", entries)
	}
}

// external writes a model whose one weight is 16 bytes at the given offset of a
// file, which holds 32.
func external(t *testing.T, location, offset string) string {
	t.Helper()
	m, err := zoo.Make("identity", 1)
	if err != nil {
		t.Fatal(err)
	}
	p := proto.Clone(m.Proto()).(*onnxpb.ModelProto)
	entry := func(key, value string) *onnxpb.StringStringEntryProto {
		return &onnxpb.StringStringEntryProto{Key: &key, Value: &value}
	}
	p.Graph.Initializer = []*onnxpb.TensorProto{{
		Name: proto.String("w"), Dims: []int64{4}, DataType: proto.Int32(1),
		DataLocation: onnxpb.TensorProto_EXTERNAL.Enum(),
		ExternalData: []*onnxpb.StringStringEntryProto{entry("location", location), entry("offset", offset), entry("length", "16")},
	}}
	b, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "m.onnx"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "weights.bin"), make([]byte, 32), 0o644); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "m.onnx")
}

func TestExternalData(t *testing.T) {
	for _, test := range []struct{ location, offset, words string }{
		{"weights.bin", "16", ""},
		{"weights.bin", "17", "which has 32"},
		{"weights.bin", "-1", "which has 32"},
		{"absent.bin", "0", "put that file beside the model"},
		{"../weights.bin", "0", "outside the model's directory"},
		{"/etc/passwd", "0", "outside the model's directory"},
		{"", "0", "outside the model's directory"},
	} {
		_, err := model.ReadFile(external(t, test.location, test.offset))
		switch {
		case test.words == "":
			if err != nil {
				t.Errorf("%q at %s: %v", test.location, test.offset, err)
			}
		case !errors.Is(err, model.ErrExternalData) || !strings.Contains(err.Error(), test.words):
			t.Errorf("%q at %s: got %v, want %q", test.location, test.offset, err, test.words)
		}
	}
}

func TestExternalDataStaysWhereItIs(t *testing.T) {
	path := external(t, "weights.bin", "0")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := model.Read(b); !errors.Is(err, model.ErrExternalData) {
		t.Errorf("read without a directory: %v", err)
	}
	m, err := model.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WriteFile(filepath.Join(t.TempDir(), "m.onnx")); !errors.Is(err, model.ErrExternalData) {
		t.Errorf("written away from its weights: %v", err)
	}
	if err := m.WriteFile(filepath.Join(filepath.Dir(path), "copy.onnx")); err != nil {
		t.Error(err)
	}
}

// A graph is read without the files of its weights.
func TestReadGraphWithoutWeights(t *testing.T) {
	path := external(t, "weights.bin", "0")
	if err := os.Remove(filepath.Join(filepath.Dir(path), "weights.bin")); err != nil {
		t.Fatal(err)
	}
	m, err := model.ReadGraph(path)
	if err != nil {
		t.Fatal(err)
	}
	if g, err := m.Graph(2); err != nil || len(g.Operators) == 0 {
		t.Errorf("graph %+v, %v", g, err)
	}
	if _, err := model.ReadGraph(filepath.Join(t.TempDir(), "none.onnx")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestContentHash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.onnx")
	b := encoded(t, "textcnn")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	if got, err := model.ContentHash(path); err != nil || got != hex.EncodeToString(sum[:]) {
		t.Errorf("got %s, %v, want the file's own SHA-256", got, err)
	}
	if _, err := model.ContentHash(path + ".absent"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// Changed weights change the hash, even in a file of their own.
func TestContentHashOfExternalData(t *testing.T) {
	path := external(t, "weights.bin", "0")
	before, err := model.ContentHash(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "weights.bin"), bytes.Repeat([]byte{1}, 32), 0o644); err != nil {
		t.Fatal(err)
	}
	after, err := model.ContentHash(path)
	if err != nil || before == after {
		t.Errorf("%s before and %s after, %v", before, after, err)
	}
}

// Reading any bytes gives a model or an error. The counts of its graph are not negative,
// and the model can be written and read again.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"identity", "textcnn", "dssm"} {
		b := encoded(f, name)
		f.Add(b[:min(len(b), 4096)])
	}
	f.Add(small(f))
	inBlocks, err := proto.Marshal(parse(f, blocked).Proto())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(inBlocks)
	f.Add(bytes.Replace(inBlocks, []byte("\n\x01x"), nil, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := model.Read(b)
		if err != nil {
			return
		}
		m.Inputs()
		m.Outputs()
		for _, batch := range []int{1, 8} {
			g, err := m.Graph(batch)
			if err != nil {
				continue
			}
			if g.FLOPs < 0 || g.Parameters < 0 || g.ParameterBytes < 0 || len(g.Operators) != len(m.Proto().GetGraph().GetNode()) {
				t.Errorf("graph %+v", g)
			}
		}
		var out bytes.Buffer
		if err := m.Write(&out); err != nil {
			return // a string that is not UTF-8
		}
		if _, err := model.Read(out.Bytes()); err != nil {
			t.Errorf("what was written cannot be read: %v", err)
		}
	})
}
