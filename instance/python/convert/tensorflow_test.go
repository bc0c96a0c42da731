package convert

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/tensor"
)

func TestKeras(t *testing.T) {
	o := options(t, filepath.Join(tensorflow(t), "words.keras"), "words.onnx")
	o.Below = 50
	r := converts(t, o)
	if r.From != Keras || r.To != ONNX || len(r.Inputs) != 2 || r.Inputs[0].Name != "words" || r.Inputs[0].Type != tensor.Int32 ||
		!slices.Equal(r.Outputs, []string{"score", "classes"}) || r.Opset != 17 || r.Versions["tf2onnx"] == "" {
		t.Errorf("%+v", r)
	}
}

func TestKerasOfHDF5(t *testing.T) {
	o := options(t, filepath.Join(tensorflow(t), "cnn.h5"), "cnn.onnx")
	write(t, o.Out, "what was there")
	o.Replace, o.Opset = true, 15
	if r := converts(t, o); r.Opset != 15 || r.Bytes < 1000 {
		t.Errorf("%+v", r)
	}
}

func TestKerasToSavedModel(t *testing.T) {
	o := options(t, filepath.Join(tensorflow(t), "words.keras"), filepath.Join("words", "1"))
	if r := converts(t, o); r.To != SavedModel || r.Opset != 0 || len(r.Outputs) != 2 {
		t.Errorf("%+v", r)
	}
}

func TestSavedModel(t *testing.T) {
	o := options(t, filepath.Join(tensorflow(t), "own"), "own.onnx")
	o.Signature = "branch"
	if r := converts(t, o); r.From != SavedModel || len(r.Outputs) != 2 {
		t.Errorf("%+v", r)
	}
}

func TestTensorFlowRefuses(t *testing.T) {
	dir := tensorflow(t)
	from := func(in string, change func(*Options)) Options {
		o := options(t, filepath.Join(dir, in), strings.ReplaceAll(in, ".", "-")+".onnx")
		change(&o)
		return o
	}
	as := func(o *Options) {}
	picture := func(name string, height int64) func(*Options) {
		return func(o *Options) {
			o.Out = filepath.Join(filepath.Dir(o.Out), name+".onnx")
			o.Inputs = []tensor.Info{{Name: name, Type: tensor.FP32, Shape: []int64{-1, height, 16, 3}}}
		}
	}
	special := func(o *Options) { o.Signature, o.Out = "special", filepath.Join(filepath.Dir(o.Out), "special.onnx") }
	told := together(t, Keras,
		from("fixed.keras", as), from("lambda.keras", as), from("cnn.weights.h5", as), from("bare", as), from("own", as), from("own", special),
		from("cnn.h5", picture("picture", 16)), from("cnn.h5", picture("image", 32)))
	for name, want := range map[string]string{
		"fixed-keras.onnx":    "fixed batch of 1: save it with None",
		"lambda-keras.onnx":   "give --trust",
		"cnn-weights-h5.onnx": "holds weights and no model",
		"bare.onnx":           "the SavedModel has no signature",
		"own.onnx":            "--signature takes one of",
		"special.onnx":        "TensorFlow's operators cannot all be said in ONNX",
		"picture.onnx":        `--input names 'picture'; the model's inputs are image`,
		"image.onnx":          "--input says image=float32[?,32,16,3], and the model has image=float32[?,16,16,3]",
	} {
		if e := told[name]; !strings.Contains(e.Error, want) {
			t.Errorf("%s: %+v, want %q", name, e, want)
		}
	}
	if all := told["special.onnx"].Operators; len(all) != 1 || all[0].Type != "Betainc" || all[0].Count != 1 || all[0].Example == "" {
		t.Errorf("%+v", all)
	}
}

// TestTensorFlowFlags runs conversions with --trust and with changed inputs in one process.
func TestTensorFlowFlags(t *testing.T) {
	dir := tensorflow(t)
	trusted := options(t, filepath.Join(dir, "lambda.keras"), "trusted.onnx")
	trusted.Trust = true
	sized := options(t, filepath.Join(dir, "open.keras"), "sized.onnx")
	sized.Inputs = []tensor.Info{{Name: "image", Type: tensor.FP32, Shape: []int64{-1, 20, 24, 3}}}
	open := options(t, filepath.Join(dir, "open.keras"), "open.onnx")
	told := together(t, Keras, trusted, sized, open)
	for name, want := range map[string][]int64{"trusted.onnx": {-1, 4}, "sized.onnx": {-1, 20, 24, 3}, "open.onnx": {-1, -1, -1, 3}} {
		if e := told[name]; e.Done == nil || !slices.Equal(e.Done.Inputs[0].Shape, want) || len(e.Done.Cases) != 3 {
			t.Errorf("%s: %+v", name, e)
		}
	}
}
