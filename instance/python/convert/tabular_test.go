package convert

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// tables are the test models that convert, with their outputs.
var tables = map[string]string{
	"logistic.pkl": "label probabilities", "forest.joblib": "label probabilities", "forest.joblib.z": "label probabilities",
	"boosting.pkl": "label probabilities", "pipeline.pkl": "label probabilities", "xgbpipeline.pkl": "label probabilities",
	"lgbm.pkl": "label probabilities", "words.pkl": "label probabilities", "linearsvc.pkl": "label", "linear.pkl": "variable",
	"regressor.pkl": "variable", "scaler.pkl": "variable", "kmeans.pkl": "label scores", "older.pkl": "label probabilities",
	"svc.pkl": "label", "voting.pkl": "label probabilities", "xgbrank.json": "variable", "lgbc.txt": "label probabilities", "catp.cbm": "predictions",
	"xgb3.json": "label probabilities", "xgb2.ubj": "label probabilities", "xgbr.json": "variable", "xgbp.ubj": "variable",
	"lgb3.txt": "label probabilities", "lgb2.txt": "label probabilities", "lgbr.txt": "variable",
	"cat3.cbm": "label probabilities", "cat2.cbm": "label probabilities", "catr.json": "predictions",
}

// missing are those whose library takes missing values.
var missing = []string{"forest.joblib", "boosting.pkl", "pipeline.pkl", "words.pkl", "regressor.pkl", "xgb3.json", "lgb3.txt", "cat3.cbm", "catr.json"}

// Each model converts, answers as its library on random rows, and in the engine as its library
// did where it was trained. All run in one process, because the libraries take seconds to import.
func TestTables(t *testing.T) {
	dir := tabular(t)
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	byName := map[string]Options{}
	var all []Options
	for name := range tables {
		o := options(t, filepath.Join(dir, name), name+".onnx")
		o.Trust, o.Batches = true, []int{1, 64}
		byName[name] = o
		all = append(all, o)
	}
	told := together(t, Pickle, append(all, refused(t, dir)...)...)
	for name, outputs := range tables {
		t.Run(name, func(t *testing.T) {
			o, e := byName[name], told[name+".onnx"]
			if e.Done == nil || strings.Join(e.Done.Outputs, " ") != outputs {
				t.Fatalf("%+v, want the outputs %s", e, outputs)
			}
			found, err := o.compare(t.Context(), filepath.Dir(o.Out), o.Out, ONNX, e.Done)
			if r := (&Result{Differences: found}); err != nil || r.Largest() > 1e-5 {
				t.Errorf("%+v, %v", found, err)
			}
			if slices.Contains(missing, name) != slices.ContainsFunc(found, func(d Difference) bool { return d.Missing }) && slices.Contains(missing, name) {
				t.Error("not compared on rows with missing values")
			}
			checkTable(t, o.Out, outputs)
			checkOwn(t, filepath.Join(dir, name), o.Out, filepath.Join(filepath.Dir(o.Out), e.Done.Part))
		})
	}
	checkRefused(t, told)
	if notes := told["older.pkl.onnx"].Done.Notes; len(notes) != 1 || !strings.Contains(notes[0], "LogisticRegression was written by scikit-learn 1.5.2") {
		t.Errorf("the notes %q", notes)
	}
}

// checkTable checks that a converted model takes a batch of rows and answers with tensors.
func checkTable(t *testing.T, file, outputs string) {
	t.Helper()
	m, err := model.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in := m.Inputs()
	if len(in) != 1 || in[0].Type != tensor.FP32 || !slices.Equal(in[0].Shape, []int64{-1, 7}) {
		t.Errorf("the inputs %+v", in)
	}
	for _, out := range m.Outputs() {
		rank := 2
		if out.Name == "label" {
			rank = 1
		}
		if len(out.Shape) != rank || out.Shape[0] != -1 {
			t.Errorf("the output %+v of %s", out, outputs)
		}
	}
	for _, node := range m.Proto().GetGraph().GetNode() {
		if node.GetOpType() == "ZipMap" {
			t.Error("it has a ZipMap")
		}
	}
}

// checkOwn compares a converted model's answers with those that the library gave when the
// model was trained. part is the model without string labels, if it is a file.
func checkOwn(t *testing.T, trained, file, part string) {
	t.Helper()
	if info, err := os.Stat(part); err == nil && info.Mode().IsRegular() {
		file = part
	}
	expected, err := filepath.Glob(trained + ".*.npy")
	if err != nil || len(expected) == 0 {
		return // Its library answers with what is no array of numbers.
	}
	x, err := load(filepath.Dir(trained), []string{filepath.Base(trained) + ".x.npy"}, []string{"input"})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := engineOf(file)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	answers, err := engine.Run(t.Context(), int(x[0].Shape[0]), x)
	if err != nil {
		t.Fatal(err)
	}
	for _, answer := range answers {
		name := filepath.Base(trained) + "." + answer.Name + ".npy"
		if !slices.Contains(expected, filepath.Join(filepath.Dir(trained), name)) {
			continue
		}
		want, err := load(filepath.Dir(trained), []string{name}, []string{answer.Name})
		if err != nil {
			t.Fatal(err)
		}
		found, err := differences(files{}, want, []tensor.Tensor{answer})
		if err != nil || !(found[0].Largest < 1e-5) {
			t.Errorf("%s: %+v, %v", answer.Name, found, err)
		}
	}
}

// String labels stay strings.
func TestStringLabelsStay(t *testing.T) {
	o := options(t, filepath.Join(tabular(t), "words.pkl"), "words.onnx")
	o.Trust, o.Batches = true, []int{4}
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), o)
	if err != nil || r.From != Pickle || len(r.Differences) != 2 || r.Versions["skl2onnx"] == "" || r.Opset < 13 {
		t.Fatalf("%+v, %v", r, err)
	}
	m, err := model.ReadFile(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	const text = 8 // onnx.TensorProto.STRING
	if out := m.Proto().GetGraph().GetOutput()[0]; out.GetName() != "label" || out.GetType().GetTensorType().GetElemType() != text {
		t.Errorf("the output %v", out)
	}
}

// refused are jobs that end in an error, and one that renames the input.
func refused(t *testing.T, dir string) []Options {
	from := func(in string) Options {
		o := options(t, filepath.Join(dir, in), in+".onnx")
		o.Trust = true
		return o
	}
	wide := from("xgbr.json")
	wide.Out = filepath.Join(filepath.Dir(wide.Out), "wide.onnx")
	wide.Inputs = []tensor.Info{{Name: "x", Type: tensor.FP32, Shape: []int64{-1, 5}}}
	named := from("linear.pkl")
	named.Out = filepath.Join(filepath.Dir(named.Out), "named.onnx")
	named.Inputs = []tensor.Info{{Name: "x", Type: tensor.FP64, Shape: []int64{-1, 7}}}
	damaged := from("lgbr.txt")
	damaged.In = filepath.Join(t.TempDir(), "damaged.txt")
	write(t, damaged.In, "tree\nversion=v4\nnum_class=x\n")
	damaged.Out = filepath.Join(filepath.Dir(damaged.Out), "damaged.onnx")
	return []Options{from("dict.pkl"), from("lost.pkl"), from("categories.cbm"), from("several.pkl"), from("dart.json"), wide, named, damaged, from("isolation.pkl")}
}

// checkRefused checks that what cannot be converted is refused with the way out.
func checkRefused(t *testing.T, told map[string]event) {
	for name, want := range map[string][]string{
		"dict.pkl.onnx":       {"holds a builtins.dict", "template python-infer"},
		"lost.pkl.onnx":       {"cannot be loaded with scikit-learn 1.", "absent_mod1", "template python-infer"},
		"categories.cbm.onnx": {"categorical", "template python-infer"},
		"several.pkl.onnx":    {"several labels", "template python-infer"},
		"dart.json.onnx":      {"booster is dart", "template python-infer"},
		"wide.onnx":           {"--input says x=float32[?,5]", "input=float32[?,7]"},
		"damaged.onnx":        {"LightGBM 4.", "cannot load"},
	} {
		for _, w := range want {
			if e := told[name]; !strings.Contains(e.Error, w) {
				t.Errorf("%s: %+v, want %q", name, e, w)
			}
		}
	}
	if e := told["named.onnx"]; e.Done == nil || e.Done.Inputs[0].Name != "x" || e.Done.Inputs[0].Type != tensor.FP64 {
		t.Errorf("%+v", e)
	}
}

// A difference in rows with missing values alone names the flag that leaves them out.
func TestMissingValuesAlone(t *testing.T) {
	r := &Result{Differences: []Difference{{"label", 8, false, 0}, {"label", 8, true, 1}}}
	if where := r.where(1e-4); !strings.Contains(where, "--no-missing") {
		t.Errorf("where is %q", where)
	}
	r.Differences[0].Largest = math.NaN()
	if where := r.where(1e-4); where != "" {
		t.Errorf("where is %q", where)
	}
}
