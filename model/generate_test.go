package model

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// laterText is a model with a small constant and two weights that are generated.
const laterText = `
ir_version: 8
opset_import { version: 17 }
graph {
  name: "later"
  input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_param: "batch" } dim { dim_value: 3 } } } } }
  output { name: "y" type { tensor_type { elem_type: 1 } } }
  initializer { name: "w" dims: 3 dims: 500 data_type: 1 data_location: EXTERNAL }
  initializer { name: "c" dims: 1 data_type: 1 float_data: 0.5 }
  initializer { name: "b" dims: 500 data_type: 1 data_location: EXTERNAL }
  node { op_type: "Gemm" input: "x" input: "w" input: "b" output: "z" }
  node { op_type: "Mul" input: "z" input: "c" output: "y" }
}`

func message(t *testing.T, text string) *onnxpb.ModelProto {
	t.Helper()
	p := new(onnxpb.ModelProto)
	if err := prototext.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// numbers generates 0, 1, 2, … plus a number of the weight's own.
func numbers(b []byte, weight *onnxpb.TensorProto, offset int64) {
	copy(b, numbersOf(weight)[offset:])
}

func numbersOf(weight *onnxpb.TensorProto) []byte {
	var b []byte
	for i := range rawSize(weight) / 4 {
		b = binary.LittleEndian.AppendUint32(b, uint32(i)+uint32(weight.GetName()[0]))
	}
	return b
}

func later(t *testing.T, generate Generator) *Model {
	t.Helper()
	m, err := Generated(message(t, laterText), generate)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// checkLater checks the graph of the model.
func checkLater(t *testing.T, m *Model) {
	t.Helper()
	g, err := m.Graph(4)
	if err != nil || g.Parameters != 2001 || len(g.Unknown) > 0 {
		t.Errorf("graph %+v, %v", g, err)
	}
}

// A model has its graph before it has its weights. In one file they are part of the
// message, as if they had been there.
func TestGeneratedInside(t *testing.T) {
	m := later(t, numbers)
	checkLater(t, m)
	if files := m.ExternalFiles(); files != nil {
		t.Errorf("the weights are in %q before they are written", files)
	}
	want := message(t, laterText)
	for _, w := range want.GetGraph().GetInitializer() {
		if isExternal(w) {
			w.DataLocation, w.RawData = nil, numbersOf(w)
		}
	}
	var got, expected bytes.Buffer
	if err := m.Write(&got); err != nil {
		t.Fatal(err)
	}
	if err := (&Model{proto: want}).Write(&expected); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), expected.Bytes()) {
		t.Error("generated weights are written in another way than those in the message")
	}
	path := filepath.Join(t.TempDir(), "m.onnx")
	if m.DataFile(path) != "" {
		t.Errorf("a small model has the second file %s", m.DataFile(path))
	}
	if err := m.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, got.Bytes()) {
		t.Errorf("the file is another model (%v)", err)
	}
}

// A large model has its weights in a second file, each from the beginning of a page on.
func TestGeneratedApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := later(t, numbers).writeFiles(path, path+".data"); err != nil {
		t.Fatal(err)
	}
	m, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	checkLater(t, m)
	data, err := os.ReadFile(path + ".data")
	if err != nil {
		t.Fatal(err)
	}
	var offsets []string
	for _, w := range m.Proto().GetGraph().GetInitializer() {
		if !isExternal(w) {
			if len(w.GetFloatData()) != 1 {
				t.Errorf("constant %s has lost its value", w.GetName())
			}
			continue
		}
		offset := externalValue(w, "offset")
		offsets = append(offsets, offset)
		at := map[string]int{"0": 0, "8192": 8192}[offset]
		if want := numbersOf(w); !bytes.Equal(data[at:at+len(want)], want) {
			t.Errorf("weight %s is not at %s", w.GetName(), offset)
		}
	}
	if strings.Join(offsets, " ") != "0 8192" || len(data) != 8192+2000 {
		t.Errorf("weights at %q of %d bytes", offsets, len(data))
	}
	if files := m.ExternalFiles(); len(files) != 1 || files[0] != "m.onnx.data" {
		t.Errorf("the weights are in %q", files)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 2 {
		t.Errorf("left over: %v, %v", entries, err)
	}
}

// Files that cannot be written leave the old ones as they were, and nothing beside them.
func TestGeneratedNotWritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.onnx")
	if err := later(t, numbers).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	full := errors.New("the disk is full")
	for _, files := range [][]staged{
		{{path + ".data", later(t, numbers).writeWeights}, {filepath.Join(dir, "absent", "m.onnx"), later(t, numbers).Write}},
		{{path + ".data", later(t, numbers).writeWeights}, {path, func(io.Writer) error { return full }}},
	} {
		if err := stage(files); !errors.Is(err, full) && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
		if _, err := ReadFile(path); err != nil {
			t.Error(err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("left over: %v, %v", entries, err)
		}
	}
	if err := later(t, numbers).Write(failing{full}); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// A range of a weight is the same before and after it is written.
func TestGeneratedRanges(t *testing.T) {
	before := later(t, numbers)
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := before.writeFiles(path, path+".data"); err != nil {
		t.Fatal(err)
	}
	after, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Model{before, after} {
		w := m.OpenWeights()
		defer w.Close()
		bias := m.Proto().GetGraph().GetInitializer()[2]
		b := make([]byte, 700)
		if err := w.ReadWeight(bias, b, 1300); err != nil || !bytes.Equal(b, numbersOf(bias)[1300:]) {
			t.Errorf("the last 700 bytes are others (%v)", err)
		}
	}
	w := before.OpenWeights()
	for _, offset := range []int64{-1, 1301} {
		if err := w.ReadWeight(before.Proto().GetGraph().GetInitializer()[2], make([]byte, 700), offset); err == nil || !strings.Contains(err.Error(), "has 2000 bytes") {
			t.Errorf("at %d: got %v", offset, err)
		}
	}
}

// A model of more than 2 GiB has a graph. It has two files, and cannot be one message.
func TestLargerThanAMessage(t *testing.T) {
	p := message(t, strings.ReplaceAll(laterText, "dims: 500", "dims: 200000000"))
	m, err := Generated(p, func([]byte, *onnxpb.TensorProto, int64) { t.Error("a weight is generated") })
	if err != nil {
		t.Fatal(err)
	}
	if g, err := m.Graph(1); err != nil || g.ParameterBytes != 4*(4*200000000+1) {
		t.Errorf("graph %+v, %v", g, err)
	}
	if err := m.Write(io.Discard); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	if got := m.DataFile("m.onnx"); got != "m.onnx.data" {
		t.Errorf("its second file is %q", got)
	}
	unsized := message(t, strings.Replace(laterText, "data_type: 1 data_location", "data_type: 8 data_location", 1))
	if _, err := Generated(unsized, numbers); !errors.Is(err, ErrNotONNX) || !strings.Contains(err.Error(), `weight "w" has the type 8`) {
		t.Errorf("got %v", err)
	}
}
