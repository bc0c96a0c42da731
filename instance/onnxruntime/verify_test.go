package onnxruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// perceptron writes what exporters write of layers of one width: products with a transposed
// weight, biases and ReLUs, and ten outputs.
func perceptron(t *testing.T, width int64) string {
	t.Helper()
	g := &onnxpb.GraphProto{
		Name:   proto.String("mlp"),
		Input:  []*onnxpb.ValueInfoProto{rows("x", width)},
		Output: []*onnxpb.ValueInfoProto{rows("y", 10)},
	}
	from := "x"
	for i, out := range []int64{width, width, 10} {
		weight, bias, to := fmt.Sprint("weight", i), fmt.Sprint("bias", i), fmt.Sprint("gemm", i)
		if i == 2 {
			to = "y"
		}
		g.Initializer = append(g.Initializer, numbers(weight, out, width), numbers(bias, out))
		g.Node = append(g.Node, &onnxpb.NodeProto{
			OpType: proto.String("Gemm"), Input: []string{from, weight, bias}, Output: []string{to},
			Attribute: []*onnxpb.AttributeProto{{Name: proto.String("transB"), Type: onnxpb.AttributeProto_INT.Enum(), I: proto.Int64(1)}},
		})
		if from = to; i < 2 {
			from = fmt.Sprint("relu", i)
			g.Node = append(g.Node, &onnxpb.NodeProto{OpType: proto.String("Relu"), Input: []string{to}, Output: []string{from}})
		}
	}
	return written(t, g)
}

// product writes a product and a sum with constant nodes in place of initialisers.
func product(t *testing.T, k, n int64) string {
	t.Helper()
	constant := func(tensor *onnxpb.TensorProto) *onnxpb.NodeProto {
		return &onnxpb.NodeProto{
			OpType: proto.String("Constant"), Output: []string{tensor.GetName()},
			Attribute: []*onnxpb.AttributeProto{{Name: proto.String("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: tensor}},
		}
	}
	return written(t, &onnxpb.GraphProto{
		Name:   proto.String("product"),
		Input:  []*onnxpb.ValueInfoProto{rows("x", k)},
		Output: []*onnxpb.ValueInfoProto{rows("y", n)},
		Node: []*onnxpb.NodeProto{
			constant(numbers("b", n)), constant(numbers("w", k, n)),
			{OpType: proto.String("MatMul"), Input: []string{"x", "w"}, Output: []string{"a"}},
			{OpType: proto.String("Add"), Input: []string{"a", "b"}, Output: []string{"y"}},
		},
	})
}

// random writes a model that adds random numbers to its input.
func random(t *testing.T) string {
	t.Helper()
	return written(t, &onnxpb.GraphProto{
		Name:   proto.String("random"),
		Input:  []*onnxpb.ValueInfoProto{rows("x", 8)},
		Output: []*onnxpb.ValueInfoProto{rows("y", 8)},
		Node: []*onnxpb.NodeProto{
			{OpType: proto.String("RandomNormalLike"), Input: []string{"x"}, Output: []string{"r"}},
			{OpType: proto.String("Add"), Input: []string{"x", "r"}, Output: []string{"y"}},
		},
	})
}

// rows is a tensor of any number of rows.
func rows(name string, width int64) *onnxpb.ValueInfoProto {
	return &onnxpb.ValueInfoProto{Name: proto.String(name), Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{
			ElemType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)),
			Shape: &onnxpb.TensorShapeProto{Dim: []*onnxpb.TensorShapeProto_Dimension{
				{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "n"}},
				{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: width}},
			}},
		}}}}
}

// numbers is a weight of numbers between -0.1 and 0.1.
func numbers(name string, dims ...int64) *onnxpb.TensorProto {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i*7919%2003)/10015 - 0.1
	}
	return &onnxpb.TensorProto{
		Name: proto.String(name), Dims: dims, DataType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)), FloatData: values,
	}
}

func written(t *testing.T, g *onnxpb.GraphProto) string {
	t.Helper()
	b, err := proto.Marshal(&onnxpb.ModelProto{
		IrVersion: proto.Int64(8), OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: proto.Int64(17)}}, Graph: g,
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), g.GetName()+".onnx")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// expectEqual compares a prepared model with the original, bit by bit.
func expectEqual(t *testing.T, path string, p Prepared) {
	t.Helper()
	original, prepared := mustOpen(t, Options{Model: path}), mustOpen(t, Options{Prepared: p.Dir})
	x := original.signature.sample(3)
	want, err := original.Run(context.Background(), 3, x)
	if err != nil {
		t.Fatal(err)
	}
	got, err := prepared.Run(context.Background(), 3, x)
	if err != nil {
		t.Fatal(err)
	}
	if !identical(want, got) {
		t.Errorf("%s in the format %s: %v", filepath.Base(path), p.Format, differences(want, got))
	}
}

// Widths that are no multiples of the engine's blocks are prepared like others, in the format
// that instances share.
func TestPrepareOddWidths(t *testing.T) {
	models := map[string]string{"constant nodes of 120×360": product(t, 120, 360), "constant nodes of 7×13": product(t, 7, 13)}
	for _, width := range []int64{1, 3, 50, 100, 300, 500, 600, 1000} {
		models[fmt.Sprint("width ", width)] = perceptron(t, width)
	}
	for name, path := range models {
		t.Run(name, func(t *testing.T) {
			p, err := Prepare(path, t.TempDir(), PrepareOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Refused) > 0 {
				t.Errorf("refused: %v", p.Refused)
			}
			expectEqual(t, path, p)
		})
	}
}

// Every format gives the original's bits, also those that are not chosen.
func TestEveryFormatKeepsTheBits(t *testing.T) {
	path, dir := zooFile(t, "mnist"), t.TempDir()
	original, err := formOf(Options{Model: path})
	if err != nil {
		t.Fatal(err)
	}
	v := &verifier{original: sentOf(original), dir: dir}
	defer v.close()
	reference, err := v.measure("")
	if err != nil {
		t.Fatal(err)
	}
	for format := range formats {
		m := v.attempt(format)
		if m.err != nil || m.load <= 0 || m.run <= 0 {
			t.Fatalf("%s: %+v", format, m)
		}
		if err := v.compare(reference, m.measurement); err != nil {
			t.Errorf("%s: %v", format, err)
		}
	}
	m, err := v.measure(FormatPacked)
	if err != nil {
		t.Fatal(err)
	}
	m.outputs[0].Data[0] ^= 1 // The last bit of one number is enough.
	if err := v.compare(reference, m); err == nil || !strings.Contains(err.Error(), "differs from the model's own") {
		t.Errorf("outputs that differ: %v", err)
	}
}

// A model that draws random numbers is prepared: it differs from itself, too.
func TestPrepareRandom(t *testing.T) {
	p, err := Prepare(random(t), t.TempDir(), PrepareOptions{})
	if err != nil || len(p.Refused) > 0 {
		t.Errorf("%+v, %v", p, err)
	}
}

// dieEnv names the formats whose check ends a verifier of this test program.
const dieEnv = "FAAS_INFER_TEST_DIE"

// killEnv names a file. The verifier that can remove it at its order is killed. A name that ends in
// "write" is for orders to write, others are for orders to measure.
const killEnv = "FAAS_INFER_TEST_KILL"

// Variables are set before the package's init, which makes this program a verifier.
var _ = func() bool {
	deadly := strings.Split(os.Getenv(dieEnv), ",")
	ordered = func(o order) {
		if once := os.Getenv(killEnv); once != "" && o.Write == strings.HasSuffix(once, "write") && os.Remove(once) == nil {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
		if o.Format != "" && slices.Contains(deadly, string(o.Format)) {
			_ = unix.Kill(os.Getpid(), unix.SIGSEGV)
			select {} // Until the signal arrives.
		}
	}
	return true
}()

// deadly makes verifiers die of a signal at the order to measure one of these formats.
func deadly(t *testing.T, formats ...Format) {
	t.Helper()
	var names []string
	for _, f := range formats {
		names = append(names, string(f))
	}
	t.Setenv(dieEnv, strings.Join(names, ","))
}

// A format whose check kills the process is not used; the next one is, and the manifest says
// why. If all written formats do, it is the original model.
func TestPrepareSurvivesTheEngine(t *testing.T) {
	path := perceptron(t, 100)
	for _, c := range []struct {
		deadly []Format
		want   Format
	}{
		{[]Format{FormatPacked}, FormatORT},
		{[]Format{FormatORT}, FormatPacked},
		{[]Format{FormatPacked, FormatORT}, FormatPlain},
	} {
		deadly(t, c.deadly...)
		cache := t.TempDir()
		p, err := Prepare(path, cache, PrepareOptions{})
		if err != nil {
			t.Fatalf("%v: %v", c.deadly, err)
		}
		if p.Format != c.want || p.Beside || len(p.Refused) != len(c.deadly) {
			t.Errorf("%v: %+v", c.deadly, p)
		}
		for _, f := range c.deadly {
			if !strings.Contains(p.Refused[f], "SIGSEGV") {
				t.Errorf("%s is refused because %q", f, p.Refused[f])
			}
		}
		expectEqual(t, path, p)
		if c.want != FormatPacked && p.MappedWeights() != 0 {
			t.Errorf("%v: %d bytes are mapped", c.deadly, p.MappedWeights())
		}
		text, err := os.ReadFile(filepath.Join(p.Dir, manifestFile))
		var manifest struct {
			Refused map[Format]string `json:"refused"`
		}
		if err := errors.Join(err, json.Unmarshal(text, &manifest)); err != nil || len(manifest.Refused) != len(c.deadly) {
			t.Errorf("the manifest has %v, %v", manifest.Refused, err)
		}
		if all, err := os.ReadDir(cache); err != nil || len(all) != 1 {
			t.Errorf("left behind: %v, %v", all, err)
		}
	}
	deadly(t, FormatPacked, FormatORT, FormatPlain)
	cache := t.TempDir()
	if _, err := Prepare(path, cache, PrepareOptions{}); err == nil || !strings.Contains(err.Error(), "format plain: the process that ran it ") {
		t.Errorf("all formats kill: %v", err)
	}
	if all, err := os.ReadDir(cache); err != nil || len(all) != 0 {
		t.Errorf("left behind: %v, %v", all, err)
	}
}

// A verifier that somebody else kills says nothing about the format.
func TestPrepareTriesAgain(t *testing.T) {
	path := perceptron(t, 100)
	for _, at := range []string{"write", "measure"} {
		once := filepath.Join(t.TempDir(), at)
		if err := os.WriteFile(once, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		t.Setenv(killEnv, once)
		p, err := Prepare(path, t.TempDir(), PrepareOptions{})
		if err != nil || len(p.Refused) > 0 {
			t.Errorf("killed at an order to %s: %+v, %v", at, p, err)
		}
		if _, err := os.Stat(once); !os.IsNotExist(err) {
			t.Errorf("no verifier was killed at an order to %s", at)
		}
	}
}

// A prepared original has the files of its weights beside it.
func TestPreparePlainWithExternalWeights(t *testing.T) {
	m, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "mnist.onnx")
	if err := m.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	path = external(t, path, "weights/all.bin")
	deadly(t, FormatPacked, FormatORT)
	p, err := Prepare(path, t.TempDir(), PrepareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Format != FormatPlain {
		t.Errorf("the format is %s", p.Format)
	}
	want := mustOpen(t, Options{Model: path})
	x := want.signature.sample(2)
	wanted, err := want.Run(t.Context(), 2, x)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	got, err := mustOpen(t, Options{Prepared: p.Dir}).Run(t.Context(), 2, x)
	if err != nil || !identical(wanted, got) {
		t.Errorf("after the original is gone: %v", err)
	}
	taken := external(t, zooFile(t, "mnist"), manifestFile)
	if _, err := Prepare(taken, t.TempDir(), PrepareOptions{}); err == nil || !strings.Contains(err.Error(), "rename it") {
		t.Errorf("weights in %s: %v", manifestFile, err)
	}
}

// external writes a model once more with its weights in another file.
func external(t *testing.T, path, name string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := new(onnxpb.ModelProto)
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	var data []byte
	for _, w := range m.GetGraph().GetInitializer() {
		if w.RawData == nil {
			continue
		}
		w.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
		for key, value := range map[string]string{"location": name, "offset": fmt.Sprint(len(data)), "length": fmt.Sprint(len(w.RawData))} {
			w.ExternalData = append(w.ExternalData, &onnxpb.StringStringEntryProto{Key: proto.String(key), Value: proto.String(value)})
		}
		data, w.RawData = append(data, w.RawData...), nil
	}
	if b, err = proto.Marshal(m); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, data, 0o644), os.WriteFile(filepath.Join(dir, "model.onnx"), b, 0o644)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "model.onnx")
}

// What a killed process has left of its work is removed when the next model is prepared.
func TestPrepareSweeps(t *testing.T) {
	cache := t.TempDir()
	for _, name := range []string{".0123456789ab-123", ".link-123", ".others"} {
		dir := filepath.Join(cache, name)
		if err := os.MkdirAll(filepath.Join(dir, "packed"), 0o755); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Prepare(zooFile(t, "identity"), cache, PrepareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir(cache)
	if err != nil || len(all) != 2 || all[0].Name() != ".others" || all[1].Name() != filepath.Base(p.Dir) {
		t.Errorf("the cache holds %v, %v", all, err)
	}
}
