package model_test

import (
	"encoding/binary"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
)

func samples(t *testing.T, m *model.Model, batch int, seed uint64) map[string]tensor.Tensor {
	t.Helper()
	in, err := m.SampleInputs(batch, seed)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]tensor.Tensor)
	for _, x := range in {
		n, err := tensor.Elements(x.Shape)
		if err != nil || int64(len(x.Data)) != n*int64(x.Type.Size()) {
			t.Fatalf("%s: shape %v with %d bytes, %v", x.Name, x.Shape, len(x.Data), err)
		}
		out[x.Name] = x
	}
	return out
}

func ofZoo(t *testing.T, name string) *model.Model {
	t.Helper()
	m, err := zoo.Make(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func int64s(x tensor.Tensor) []int64 {
	var out []int64
	for b := x.Data; len(b) > 0; b = b[8:] {
		out = append(out, int64(binary.LittleEndian.Uint64(b)))
	}
	return out
}

func TestSampleInputsRepeat(t *testing.T) {
	m := ofZoo(t, "dssm")
	if !reflect.DeepEqual(samples(t, m, 2, 7), samples(t, m, 2, 7)) {
		t.Error("the same seed gives two samples")
	}
	if reflect.DeepEqual(samples(t, m, 2, 7), samples(t, m, 2, 8)) {
		t.Error("two seeds give the same sample")
	}
}

func TestSampleFloats(t *testing.T) {
	for _, b := range samples(t, ofZoo(t, "mnist"), 2, 1) {
		for data := b.Data; len(data) > 0; data = data[4:] {
			if v := math.Float32frombits(binary.LittleEndian.Uint32(data)); !(v >= 0 && v <= 1) {
				t.Fatalf("%g is not in [0, 1]", v)
			}
		}
	}
}

// The words of the LSTM pass a Transpose before they are looked up.
func TestSampleWords(t *testing.T) {
	x := samples(t, ofZoo(t, "lstm"), 64, 1)["words"]
	largest := int64(0)
	for _, v := range int64s(x) {
		if v < 0 || v >= 2365 {
			t.Fatalf("word %d is not in the table", v)
		}
		largest = max(largest, v)
	}
	if largest < 2000 {
		t.Errorf("the largest of a thousand words is %d: the table is not used", largest)
	}
}

// masked is a small model with a transformer's inputs: a mask and words.
const masked = `
ir_version: 8
opset_import { version: 17 }
graph {
  name: "masked"
  input { name: "input_ids" type { tensor_type { elem_type: 6 shape { dim { dim_param: "b" } dim { dim_param: "n" } } } } }
  input { name: "attention_mask" type { tensor_type { elem_type: 7 shape { dim { dim_param: "b" } dim { dim_param: "n" } } } } }
  input { name: "segment" type { tensor_type { elem_type: 7 shape { dim { dim_param: "b" } dim { dim_param: "n" } } } } }
  input { name: "picture" type { tensor_type { elem_type: 10 shape { dim { dim_param: "b" } dim { dim_value: 3 } dim { dim_param: "h" } dim { dim_param: "w" } } } } }
  output { name: "y" type { tensor_type { elem_type: 1 } } }
  initializer { name: "table" dims: 10 dims: 4 data_type: 1 }
  initializer { name: "segments" dims: 2 dims: 4 data_type: 1 }
  node { op_type: "Gather" input: "table" input: "input_ids" output: "x" }
  node { op_type: "Gather" input: "segments" input: "segment" output: "z" }
  node { op_type: "Add" input: "x" input: "z" output: "y" }
}`

func TestSampleMasks(t *testing.T) {
	in := samples(t, parse(t, masked), 4, 1)
	if ids := in["input_ids"]; ids.Type != tensor.Int32 || len(ids.Data) != 4*4*128 {
		t.Errorf("ids are %s %v", ids.Type, ids.Shape)
	}
	rows := int64s(in["attention_mask"])
	for len(rows) > 0 {
		if rows[0] != 1 {
			t.Error("a mask hides everything")
		}
		for i := 1; i < 128; i++ {
			if rows[i] > rows[i-1] || rows[i] < 0 {
				t.Fatalf("mask %v is not ones and then zeros", rows[:128])
			}
		}
		rows = rows[128:]
	}
	for _, v := range int64s(in["segment"]) {
		if v != 0 && v != 1 {
			t.Fatalf("segment %d", v)
		}
	}
}

// An optimised graph looks words and segments up in one operator.
func TestSampleOfAFusedEmbedding(t *testing.T) {
	_, nodes, _ := strings.Cut(masked, "  node {")
	fused := strings.Replace(masked, "  node {"+nodes, `
  node { op_type: "EmbedLayerNormalization" domain: "com.microsoft" input: "input_ids" input: "segment"
    input: "table" input: "table" input: "segments" input: "table" output: "y" } }`, 1)
	in := samples(t, parse(t, strings.ReplaceAll(fused, "elem_type: 6", "elem_type: 7")), 4, 1)
	if ids := int64s(in["input_ids"]); slices.Max(ids) != 9 || slices.Min(ids) != 0 {
		t.Errorf("words are from %d to %d, the table has 10", slices.Min(ids), slices.Max(ids))
	}
	if segments := int64s(in["segment"]); slices.Max(segments) != 1 {
		t.Errorf("segments are up to %d, the table has 2", slices.Max(segments))
	}
}

func TestSampleHalves(t *testing.T) {
	x := samples(t, parse(t, masked), 1, 1)["picture"]
	if !reflect.DeepEqual(x.Shape, []int64{1, 3, 224, 224}) {
		t.Errorf("a picture of open size is %v", x.Shape)
	}
	sum := 0.0
	for b := x.Data; len(b) > 0; b = b[2:] {
		bits := binary.LittleEndian.Uint16(b)
		v := math.Ldexp(1+float64(bits&0x3ff)/1024, int(bits>>10)-15)
		if bits == 0 {
			v = 0
		}
		if v < 0 || v > 1 {
			t.Fatalf("%#x is %g, not in [0, 1]", bits, v)
		}
		sum += v
	}
	if mean := sum / (3 * 224 * 224); math.Abs(mean-0.5) > 0.01 {
		t.Errorf("the mean is %g", mean)
	}
}

func TestSampleErrors(t *testing.T) {
	huge := strings.Replace(masked, `dim { dim_value: 3 }`, `dim { dim_value: 300000 }`, 1)
	if _, err := parse(t, huge).SampleInputs(1, 1); err == nil || !strings.Contains(err.Error(), `"picture"`) {
		t.Errorf("got %v", err)
	}
	complex := strings.Replace(masked, `elem_type: 10`, `elem_type: 14`, 1)
	if _, err := parse(t, complex).SampleInputs(1, 1); err == nil || !strings.Contains(err.Error(), "element type") {
		t.Errorf("got %v", err)
	}
}

// Strings are digits, which models also parse as numbers.
func TestSampleStrings(t *testing.T) {
	words := strings.Replace(masked, `elem_type: 10`, `elem_type: 8`, 1)
	inputs, err := parse(t, words).SampleInputs(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	x := inputs[slices.IndexFunc(inputs, func(in tensor.Tensor) bool { return in.Name == "picture" })]
	if err := tensor.CheckStrings(x.Data, 2*3*224*224); err != nil || x.Type != tensor.Bytes {
		t.Fatalf("%s of the shape %v: %v", x.Type, x.Shape, err)
	}
	seen := map[string]bool{}
	for s := range tensor.Strings(x.Data) {
		seen[string(s)] = true
	}
	if len(seen) != 10 || !seen["0"] || !seen["9"] {
		t.Errorf("the strings are %v", seen)
	}
}
