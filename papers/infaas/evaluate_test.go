package infaas

import (
	"archive/zip"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command/commandtest"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/labelled"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/provider/children"
)

// reals is an output of FP32.
func reals(shape []int64, values ...float32) tensor.Tensor {
	t := tensor.Tensor{Type: tensor.FP32, Shape: shape}
	for _, v := range values {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return t
}

func TestAnswersOf(t *testing.T) {
	info := func(kind tensor.Type, shape ...int64) tensor.Info { return tensor.Info{Type: kind, Shape: shape} }
	for _, c := range []struct {
		outputs []tensor.Info
		want    answers
	}{
		{[]tensor.Info{info(tensor.FP32, -1, 10)}, answers{scores, 0}},
		{[]tensor.Info{info(tensor.Int64, -1), info(tensor.FP32, -1, 10)}, answers{scores, 1}},
		{[]tensor.Info{info(tensor.FP32, -1, 1), info(tensor.FP32, -1, -1)}, answers{scores, 1}},
		{[]tensor.Info{info(tensor.FP32, -1, 1)}, answers{chance, 0}},
		{[]tensor.Info{info(tensor.Int64, -1), info(tensor.FP32, -1)}, answers{chance, 1}},
		{[]tensor.Info{info(tensor.Int64, -1)}, answers{class, 0}},
		{[]tensor.Info{info(tensor.FP32, -1, 8, 8)}, answers{}},
	} {
		if got := answersOf(c.outputs); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.outputs, got, c.want)
		}
	}
}

func TestAnswers(t *testing.T) {
	nan := float32(math.NaN())
	right := func(a answers, label int, out tensor.Tensor, row int) bool {
		return registration.Top1.Right(a.of([]tensor.Tensor{out}, row), label)
	}
	two := reals([]int64{2, 3}, 0, 5, 1, 7, nan, 1)
	if !right(answers{scores, 0}, 1, two, 0) || right(answers{scores, 0}, 0, two, 1) {
		t.Error("scores")
	}
	chances := reals([]int64{3, 1}, 0.2, 0.8, nan)
	if !right(answers{chance, 0}, 0, chances, 0) || !right(answers{chance, 0}, 1, chances, 1) || right(answers{chance, 0}, 0, chances, 2) {
		t.Error("chances")
	}
	number := tensor.Tensor{Type: tensor.Int64, Shape: []int64{2}, Data: binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 3), math.MaxUint64)}
	if !right(answers{class, 0}, 3, number, 0) || right(answers{class, 0}, 2, number, 0) || right(answers{class, 0}, 0, number, 1) {
		t.Error("classes")
	}
	if numberless([]tensor.Tensor{two}, 0) || !numberless([]tensor.Tensor{two}, 1) {
		t.Error("a row without numbers")
	}
}

func TestAgree(t *testing.T) {
	shape := []int64{1, 2}
	for _, c := range []struct {
		how        answers
		old, fresh []float32
		want       bool
	}{
		{answers{scores, 0}, []float32{1, 2}, []float32{0, 9}, true},
		{answers{scores, 0}, []float32{1, 2}, []float32{3, 2}, false},
		{answers{scores, 0}, []float32{1, 2}, []float32{float32(math.NaN()), 2}, false},
		{answers{}, []float32{-1, 2}, []float32{-1.09, 2}, true},
		{answers{}, []float32{-1, 2}, []float32{-1.11, 2}, false},
		{answers{}, []float32{-1, 2}, []float32{float32(math.NaN()), 2}, false},
	} {
		if got := c.how.agree([]tensor.Tensor{reals(shape, c.old...)}, []tensor.Tensor{reals(shape, c.fresh...)}, 0); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// npz writes rows of images for the zoo's mnist, with labels.
func npz(t *testing.T, labels []int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "v.npz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x := tensor.Tensor{Type: tensor.FP32, Shape: []int64{int64(len(labels)), 1, 28, 28}}
	y := tensor.Tensor{Type: tensor.Int64, Shape: x.Shape[:1]}
	for row, label := range labels {
		for i := range 28 * 28 {
			x.Data = binary.LittleEndian.AppendUint32(x.Data, math.Float32bits(float32((row*31+i*17)%256)/256))
		}
		y.Data = binary.LittleEndian.AppendUint64(y.Data, uint64(label))
	}
	w := zip.NewWriter(f)
	for name, array := range map[string]tensor.Tensor{"x.npy": x, "y.npy": y} {
		text, err := protocol.AppendNPY(nil, array)
		if err != nil {
			t.Fatal(err)
		}
		member, err := w.Create(name)
		if err == nil {
			_, err = member.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// figures runs a command with --json and returns its figures.
func figures(t *testing.T, args ...string) map[string]float64 {
	t.Helper()
	out, err := execute(t, append(args, "--json")...)
	if err != nil {
		t.Fatal(err)
	}
	var r report.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range r.Results {
		found[f.Name] = f.Value
	}
	return found
}

// classesOf returns the classes that a model answers with to the rows of npz.
func classesOf(t *testing.T, file string, rows int) []int64 {
	t.Helper()
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	prepared, err := children.New(children.Config{Prepared: t.TempDir()}).Prepare(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	e, err := onnxruntime.Open(onnxruntime.Options{Model: file, Prepared: prepared, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	set, err := labelled.Read(npz(t, make([]int64, rows)), protocol.Own(e.Inputs()), "")
	if err != nil {
		t.Fatal(err)
	}
	inputs, err := set.Batch(0, rows)
	if err != nil {
		t.Fatal(err)
	}
	out, err := runRows(t.Context(), e, rows, inputs)
	if err != nil {
		t.Fatal(err)
	}
	var classes []int64
	for row := range rows {
		scores := answersOf(signatureOf(e).Outputs).of(out, row)
		classes = append(classes, int64(slices.Index(scores, slices.Max(scores))))
	}
	return classes
}

// A model's own answers as labels give 100 %, and less if some are changed.
func TestEvaluate(t *testing.T) {
	file, cache := commandtest.ZooModel(t, "mnist", 1), t.TempDir()
	labels := classesOf(t, file, 40)
	for _, wrong := range []int{0, 10} {
		for i := range wrong {
			labels[i] = (labels[i] + 1) % 10
		}
		f := figures(t, "model", "evaluate", file, "--data", npz(t, labels), "--prepared", cache)
		if want := float64(100 * (40 - wrong) / 40); f["accuracy"] != want {
			t.Errorf("%d labels of 40 are wrong: an accuracy of %v %%, want %v", wrong, f["accuracy"], want)
		}
		if f["row_ms"] <= 0 || f["rps"] < 1000/f["row_ms"]-1 || f["memory_mb"] < 1 || f["load_ms"] <= 0 || f["rows"] != 40 || f["nan_rows"] != 0 {
			t.Errorf("%v", f)
		}
	}
}

func TestEvaluateAgainst(t *testing.T) {
	file, other, cache := commandtest.ZooModel(t, "mnist", 1), commandtest.ZooModel(t, "mnist", 2), t.TempDir()
	if f := figures(t, "model", "evaluate", file, "--against", file, "--rows", "30", "--prepared", cache); f["agreement"] != 100 || f["rows"] != 30 {
		t.Errorf("against itself: %v", f)
	}
	if f := figures(t, "model", "evaluate", file, "--prepared", cache); f["row_ms"] <= 0 || f["rows"] != 0 {
		t.Errorf("alone: %v", f)
	}
	f := figures(t, "model", "evaluate", file, "--against", other, "--prepared", cache)
	if _, is := f["accuracy"]; is || f["agreement"] > 90 {
		t.Errorf("against other weights: %v", f)
	}
}

func TestEvaluateRefuses(t *testing.T) {
	mnist, dssm, cache := commandtest.ZooModel(t, "mnist", 1), commandtest.ZooModel(t, "dssm", 1), t.TempDir()
	two := withModels(t, "models: [{name: a, model: a.onnx}, {name: b, model: b.onnx}]\n", "mnist", "mnist")
	one := withModels(t, "engine: onnx\nmodel: a.onnx\n", "mnist")
	python := withModels(t, "engine: python\nhandler: handler.py\n")
	if err := os.WriteFile(filepath.Join(python, "handler.py"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"bundle.yaml is the manifest of a bundle, not a model: give the file " + filepath.Join(two, "a.onnx") + " or " + filepath.Join(two, "b.onnx") +
			`; "faas-infer model variants ` + two + `" measures them all`: {filepath.Join(two, "bundle.yaml")},
		"is a directory, not a model: give the file " + filepath.Join(one, "a.onnx"): {one},
		"--against: " + one + "/bundle.yaml is the manifest of a bundle, not":        {mnist, "--against", filepath.Join(one, "bundle.yaml")},
		"is the manifest of a bundle without ONNX models":                            {filepath.Join(python, "bundle.yaml")},
		"is a directory, not a model: give the file of one ONNX model":               {cache},
		`--metric is "f1"`:                  {mnist, "--data", "v.npz", "--metric", "f1"},
		"--rows is 5":                       {mnist, "--against", mnist, "--rows", "5"},
		"row 3 has the label 10, and the":   {mnist, "--data", npz(t, append(make([]int64, 3), append([]int64{10}, make([]int64, 36)...)...))},
		"there are 5 labelled rows":         {mnist, "--data", npz(t, make([]int64, 5))},
		"labelled data: stat none.":         {mnist, "--data", "none.npz"},
		"none.onnx: no such file":           {"none.onnx", "--data", "v.npz"},
		"--against: it takes image FP32":    {dssm, "--against", mnist},
		"no array query for the model's in": {dssm, "--data", npz(t, make([]int64, 40))},
	} {
		_, err := execute(t, append([]string{"model", "evaluate", "--prepared", cache}, args...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}
