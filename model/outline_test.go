package model_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// An outline has the model's graph and reads its weights, but holds none of them.
func TestOutline(t *testing.T) {
	m, err := model.Read(encoded(t, "mobilenet"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := m.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o, err := model.ReadOutline(path)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > uint64(info.Size())/4 {
		t.Errorf("an outline of a model of %d bytes takes %d", info.Size(), took)
	}
	want, err := m.Graph(3)
	if err != nil {
		t.Fatal(err)
	}
	got, err := o.Graph(3)
	if err != nil {
		t.Fatal(err)
	}
	if got.FLOPs != want.FLOPs || got.ParameterBytes != want.ParameterBytes || len(got.Operators) != len(want.Operators) {
		t.Errorf("%d multiply-adds, %d bytes, %d operators; want %d, %d, %d", got.FLOPs, got.ParameterBytes, len(got.Operators), want.FLOPs, want.ParameterBytes, len(want.Operators))
	}
	weights := o.OpenWeights()
	defer weights.Close()
	whole := m.OpenWeights()
	defer whole.Close()
	external := 0
	for i, x := range m.Proto().GetGraph().GetInitializer() {
		y := o.Proto().GetGraph().GetInitializer()[i]
		if y.GetDataLocation() == onnxpb.TensorProto_EXTERNAL {
			external++
		}
		n := int64(len(x.GetRawData()))
		a, b := make([]byte, n-n/3), make([]byte, n-n/3)
		if err := whole.ReadWeight(x, a, n/3); err != nil {
			t.Fatal(err)
		}
		if err := weights.ReadWeight(y, b, n/3); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("weight %q differs", x.GetName())
		}
		if err := weights.ReadWeight(y, make([]byte, 8), n-4); err == nil && y.GetDataLocation() != onnxpb.TensorProto_EXTERNAL {
			t.Errorf("weight %q is read beyond its end", x.GetName())
		}
	}
	if external == 0 {
		t.Error("no weight is left in the file")
	}
}

// Weights in protobuf's own numbers are read as those in raw bytes.
func TestOutlineOfNumbers(t *testing.T) {
	m, err := model.Read(encoded(t, "mnist"))
	if err != nil {
		t.Fatal(err)
	}
	p := proto.CloneOf(m.Proto())
	for _, x := range p.Graph.Initializer {
		if x.GetDataType() != int32(onnxpb.TensorProto_FLOAT) {
			continue
		}
		packed := append([]byte{4<<3 | 2}, appendVarint(nil, uint64(len(x.RawData)))...)
		t := new(onnxpb.TensorProto)
		if err := proto.Unmarshal(append(packed, x.RawData...), t); err != nil {
			panic(err)
		}
		x.FloatData, x.RawData = t.FloatData, nil
	}
	numbers, err := model.FromProto(p)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.onnx")
	if err := numbers.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	o, err := model.ReadOutline(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []*model.Model{numbers, o} {
		weights := from.OpenWeights()
		defer weights.Close()
		for i, x := range m.Proto().GetGraph().GetInitializer() {
			b := make([]byte, len(x.GetRawData()))
			if err := weights.ReadWeight(from.Proto().GetGraph().GetInitializer()[i], b, 0); err != nil || !bytes.Equal(b, x.GetRawData()) {
				t.Errorf("weight %q: %v", x.GetName(), err)
			}
		}
	}
}

func appendVarint(b []byte, v uint64) []byte {
	for ; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

// A damaged file is an error that says so, and never a panic.
func TestOutlineOfDamage(t *testing.T) {
	b := encoded(t, "mnist")
	path := filepath.Join(t.TempDir(), "m.onnx")
	for _, n := range []int{0, 1, 7, len(b) / 2, len(b) - 1} {
		if err := os.WriteFile(path, b[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := model.ReadOutline(path); !errors.Is(err, model.ErrNotONNX) && !errors.Is(err, model.ErrTruncated) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if err := os.WriteFile(path, []byte("plain text, no model"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := model.ReadOutline(path); !errors.Is(err, model.ErrNotONNX) && !errors.Is(err, model.ErrTruncated) {
		t.Errorf("text: %v", err)
	}
}
