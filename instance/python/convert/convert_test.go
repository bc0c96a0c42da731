package convert

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
)

func TestParseInput(t *testing.T) {
	got, err := ParseInput(" x = Float32[?, 3,?] ")
	if err != nil || got.Name != "x" || got.Type != tensor.FP32 || !slices.Equal(got.Shape, []int64{-1, 3, -1}) {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"x":               "NAME=TYPE[SHAPE]",
		"x=float32":       "NAME=TYPE[SHAPE]",
		"=float32[?]":     "NAME=TYPE[SHAPE]",
		"x=complex64[?]":  "the type complex64",
		"x=float32[]":     `the dimension ""`,
		"x=float32[?,-1]": `the dimension "-1"`,
		"x=float32[?,0]":  `the dimension "0"`,
		"x=float32[1,3]":  "the first dimension 1; this is the batch",
	} {
		if _, err := ParseInput(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestRefusesBeforeAnythingIsRun(t *testing.T) {
	dir := t.TempDir()
	var onnx bytes.Buffer
	identity, err := zoo.Make("identity", 1)
	if err == nil {
		err = identity.Write(&onnx)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"m.keras": "\x89HDF\r\n\x1a\n", "m.pt2": archive(t, "a/models/model.json"), "m.onnx": onnx.String(), "there.onnx": "", "empty.pkl": "",
		"half.onnx": onnx.String()[:onnx.Len()-1], "m.txt": "some text\n", "m.gguf": "GGUF\x03", "saved_model.pb": "\x08\x01\x12\x0a\x0a\x08\x12\x06\x0a\x04\x0a\x02Op",
		"m.pkl": "\x80\x04}\x94.",
	} {
		write(t, filepath.Join(dir, name), text)
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		in, out string
		change  func(*Options)
		want    string
	}{
		{"none.keras", "out.onnx", nil, "none.keras does not exist"},
		{"m.txt", "out.onnx", nil, "not an ONNX model"},
		{"half.onnx", "out.onnx", nil, "copy the file again"},
		{"empty.pkl", "out.onnx", nil, "it is an empty file"},
		{"m.gguf", "out.onnx", nil, "m.gguf cannot be converted: it is a language model in GGUF"},
		{"m.pkl", "out.onnx", nil, "loading it runs code that is in it; if you trust the file, give --trust"},
		{"m.onnx", "out.onnx", nil, "is an ONNX model already"},
		{"saved_model.pb", "out.onnx", nil, "name the directory"},
		{"empty", "out.onnx", nil, "has no saved_model.pb"},
		{"m.keras", "out.tflite", nil, "the output must be ONNX"},
		{"m.pt2", "out", nil, "which cannot become a SavedModel; name a .onnx file"},
		{"m.keras", "there.onnx", nil, "already exists; remove it"},
		{"m.keras", "out.onnx", func(o *Options) { o.Signature = "s" }, "only a SavedModel has signatures"},
		{"m.keras", "out.onnx", func(o *Options) { o.Opset = 7 }, "the opset is 7; it must be between 13 and 23"},
		{"m.keras", "out.onnx", func(o *Options) { o.Batches = []int{0} }, "the batch size for the comparison is 0"},
		{"m.keras", "out.onnx", func(o *Options) { o.Below = 0 }, "a limit for integers of at least 1"},
		{"m.keras", "out.onnx", func(o *Options) { o.Tolerance = math.NaN() }, "a tolerance of at least 0"},
	} {
		o := Options{In: filepath.Join(dir, c.in), Out: filepath.Join(dir, c.out), Batches: []int{1}, Below: 2}
		if c.change != nil {
			c.change(&o)
		}
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s to %s: %v, want %q", c.in, c.out, err, c.want)
		}
	}
}

// archive returns a zip archive with an empty file.
func archive(t *testing.T, name string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	if _, err := w.Create(name); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// If a converter dies without a result, the error has its log's last line. A cancelled
// converter is stopped.
func TestConverterDies(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "python")
	write := func(script string) environment.Environment {
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return environment.Environment{Python: program}
	}
	model := filepath.Join(dir, "m.keras")
	if err := os.WriteFile(model, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	o := options(t, model, "out.onnx")
	e := write("cat >/dev/null; echo 'a word that is no event'; echo first >&2; echo Killed >&2; exit 137")
	if _, err := o.call(t.Context(), e, job{From: Keras, To: ONNX, work: dir}); err == nil || !strings.Contains(err.Error(), "fromtensorflow.py ended without a result: Killed") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	o.Step = func(string) { cancel() }
	e = write(`echo '{"step": "waiting"}'; exec sleep 600`)
	if _, err := o.call(ctx, e, job{From: Keras, To: ONNX, work: dir}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func floats(name string, values ...float32) tensor.Tensor {
	t := tensor.Tensor{Name: name, Type: tensor.FP32, Shape: []int64{int64(len(values))}}
	for _, v := range values {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return t
}

func TestDifferences(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		old, fresh []float32
		want       float64
	}{
		{[]float32{1, 2}, []float32{1, 2}, 0},
		{[]float32{0, 0.5}, []float32{0.25, 0.5}, 0.25},
		{[]float32{100}, []float32{101}, 0.01},
		{[]float32{nan, inf}, []float32{nan, inf}, 0},
		{[]float32{1}, []float32{nan}, math.Inf(1)},
		{[]float32{inf}, []float32{-inf}, math.Inf(1)},
	} {
		got, err := differences(files{Rows: 3}, []tensor.Tensor{floats("y", c.old...)}, []tensor.Tensor{floats("z"), floats("y", c.fresh...)})
		if err != nil || len(got) != 1 || got[0] != (Difference{"y", 3, false, c.want}) {
			t.Errorf("%v against %v: %+v, %v, want %g", c.old, c.fresh, got, err, c.want)
		}
	}
	old := []tensor.Tensor{floats("y", 1)}
	for want, fresh := range map[string]tensor.Tensor{
		`no output "y"`: floats("z", 1), "FP32[2], the old one as FP32[1]": floats("y", 1, 2),
	} {
		if _, err := differences(files{Rows: 1}, old, []tensor.Tensor{fresh}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestLargest(t *testing.T) {
	r := &Result{Differences: []Difference{{"y", 1, false, 0.1}, {"y", 8, false, math.Inf(1)}}}
	if !math.IsInf(r.Largest(), 1) {
		t.Errorf("%g", r.Largest())
	}
}

func TestUnsupportedErrorNamesThem(t *testing.T) {
	err := &UnsupportedError{"not all", []Operator{{"Betainc", 2, "a/b"}, {"aten.foo", 1, ""}}}
	if got := err.Error(); !strings.HasPrefix(got, "not all: Betainc (2 times, for example a/b), aten.foo. ") {
		t.Error(got)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A directory that cannot be replaced is put back.
func TestPlacePutsTheOldModelBack(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "model")
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (Options{Out: out}).place(filepath.Join(dir, "missing")); err == nil {
		t.Error("no error without a new model")
	}
	if _, err := os.Stat(out); err != nil {
		t.Errorf("the old model: %v", err)
	}
}
