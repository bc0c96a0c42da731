package convert

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/tensor"
)

var image = []tensor.Info{{Name: "image", Type: tensor.FP32, Shape: []int64{-1, 3, 16, 16}}}

func TestExportedProgram(t *testing.T) {
	o := options(t, filepath.Join(torch(t), "heads.pt2"), "heads.onnx")
	o.Below = 40
	r := converts(t, o)
	if r.From != Torch || len(r.Inputs) != 2 || r.Inputs[0].Name != "words" || r.Inputs[0].Type != tensor.Int64 ||
		!slices.Equal(r.Outputs, []string{"score", "hidden"}) || r.Opset < 18 || r.Versions["torch"] == "" {
		t.Errorf("%+v", r)
	}
}

func TestTorchScript(t *testing.T) {
	o := options(t, filepath.Join(torch(t), "scripted.pt"), "scripted.onnx")
	o.Inputs = image
	if r := converts(t, o); !slices.Equal(r.Outputs, []string{"output"}) {
		t.Errorf("%+v", r)
	}
}

func TestPickledModule(t *testing.T) {
	o := options(t, filepath.Join(torch(t), "pickled.pt"), "pickled.onnx")
	o.Inputs, o.Trust = image, true
	converts(t, o)
}

func TestTorchRefuses(t *testing.T) {
	dir := torch(t)
	from := func(in string) Options {
		return options(t, filepath.Join(dir, in), strings.ReplaceAll(in, ".", "-")+".onnx")
	}
	told := together(t, Torch, from("fixed.pt2"), from("weights.pt"), from("scripted.pt"), from("pickled.pt"), from("special.pt2"))
	for name, want := range map[string][]string{
		"fixed-pt2.onnx":   {"fixed batch of 2: export it with an open one, torch.export.save("},
		"weights-pt.onnx":  {"holds weights", "torch.export.save("},
		"scripted-pt.onnx": {"give --input NAME=TYPE[?,...]"},
		"pickled-pt.onnx":  {"pickled module", "torch.export.save", "give --trust"},
		"special-pt2.onnx": {"PyTorch's operators cannot all be said in ONNX"},
	} {
		for _, w := range want {
			if e := told[name]; !strings.Contains(e.Error, w) {
				t.Errorf("%s: %+v, want %q", name, e, w)
			}
		}
	}
	if all := told["special-pt2.onnx"].Operators; len(all) != 1 || !strings.Contains(all[0].Type, "bessel_j0") {
		t.Errorf("%+v", all)
	}
}
