package bundle_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
)

func TestManifestsOfSeveralModels(t *testing.T) {
	two := func(second string) string {
		return "models:\n  - {name: resnet50, model: resnet50.onnx, image: 224x224}\n  - " + second + "\n"
	}
	many := func(n int) (text string) {
		for i := range n {
			text += fmt.Sprintf("\n  - {name: m%d, model: m%d.onnx}", i, i)
		}
		return text + "\n"
	}
	for _, c := range []struct{ text, wrong string }{
		{"models:" + many(64), ""},
		{two("{name: mobilenet, model: mobilenet.onnx, accuracy: 70.6}"), ""},
		{"engine: onnx\n" + two("{name: a-1, model: sub/a.onnx, accuracy: 100, image: 32x32 fit=crop}") + "validation: {data: v.npz, metric: top-5}\n", ""},
		{"engine: onnx\nmodel: m.onnx\nvalidation: {data: images}\n", ""},
		{two("{name: Mobile, model: m.onnx}"), `models[1].name is "Mobile"`},
		{two("{name: -a, model: m.onnx}"), `models[1].name is "-a"`},
		{two("{name: a-, model: m.onnx}"), `models[1].name is "a-"`},
		{two("{name: a/b, model: m.onnx}"), `models[1].name is "a/b"`},
		{two("{name: " + strings.Repeat("a", 65) + ", model: m.onnx}"), "models[1].name is"},
		{two("{model: m.onnx}"), `models[1].name is ""`},
		{two("{name: resnet50, model: m.onnx}"), `models[1].name is "resnet50", as that of models[0]`},
		{two("{name: other, model: ./resnet50.onnx}"), `models[1].model is "./resnet50.onnx", as that of models[0]`},
		{two("{name: a}"), "models[1].model is missing"},
		{two("{name: a, model: ../m.onnx}"), `models[1].model is "../m.onnx"`},
		{two("{name: a, model: m.onnx, accuracy: 101}"), "models[1].accuracy is 101"},
		{two("{name: a, model: m.onnx, accuracy: -1}"), "models[1].accuracy is -1"},
		{two("{name: a, model: m.onnx, accuracy: .nan}"), "models[1].accuracy is NaN"},
		{two("{name: a, model: m.onnx, accuracy: 0}"), "models[1].accuracy is 0"},
		{two("{name: a, model: m.onnx, image: big}"), `models[1].image is "big"; it must begin`},
		{two("{name: a, model: m.onnx, size: 3}"), "size"},
		{"models: []\n", "models is empty; list the bundle's models in it, each as `- {name: resnet50, model: resnet50.onnx}`"},
		{"engine: onnx\nmodels: []\n", "models is empty"},
		{"models:" + many(65), "models has 65 models; list at most 64"},
		{"model: m.onnx\n" + two("{name: a, model: a.onnx}"), `model is "m.onnx" and models lists others`},
		{"engine: python\nhandler: h.py\n" + two("{name: a, model: a.onnx}"), "models is for the engine onnx, not for python"},
		{"engine: triton\nmodel_name: a\n" + two("{name: a, model: a.onnx}"), "models is for the engine onnx, not for triton"},
		{"handler: handler.go\n" + two("{name: a, model: a.onnx}"), "handler is for one model"},
		{"process: ./handler\n" + two("{name: a, model: a.onnx}"), "process is for programs, models is for models"},
		{"process: ./handler\nvalidation: {data: v.npz}\n", "process is for programs, validation is for models"},
		{"engine: onnx\nmodel: m.onnx\nvalidation: {metric: top-1}\n", "validation.data is missing"},
		{"engine: onnx\nmodel: m.onnx\nvalidation: {data: /etc/v.npz}\n", `validation.data is "/etc/v.npz"`},
		{"engine: onnx\nmodel: m.onnx\nvalidation: {data: v.npz, metric: f1}\n", `validation.metric is "f1"; it must be top-1 or top-5`},
		{"engine: tensorflow\nmodel: m\nvalidation: {data: v.npz}\n", "validation is for models of the engine onnx"},
		{"engine: onnx\nmodel: m.onnx\nhandler: h.go\nvalidation: {data: v.npz}\n", "validation is for models of the engine onnx without a handler"},
	} {
		_, err := bundle.ParseManifest([]byte(c.text))
		if c.wrong == "" && err != nil {
			t.Errorf("%q: %v", c.text, err)
		}
		if c.wrong != "" && (!errors.Is(err, bundle.ErrManifest) || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%q: %v, want %q", c.text, err, c.wrong)
		}
	}
}

// One model is registered under the bundle's name; the annotation says what image a
// model expects unless it says so itself.
func TestRegistered(t *testing.T) {
	stated := 70.6
	for text, want := range map[string][]bundle.ManifestModel{
		"name: a\nengine: onnx\nmodel: m.onnx\n":                                               {{Name: "a", Model: "m.onnx"}},
		"name: a\nengine: onnx\nmodel: m.onnx\nannotations: {com.openfaas.infer.image: 8x8}\n": {{Name: "a", Model: "m.onnx", Image: "8x8"}},
		"models: [{name: b, model: b.onnx, image: 9x9}, {name: c, model: c.onnx, accuracy: 70.6}]\nannotations: {com.openfaas.infer.image: 8x8}\n": {
			{Name: "b", Model: "b.onnx", Image: "9x9"}, {Name: "c", Model: "c.onnx", Image: "8x8", Accuracy: &stated},
		},
		"process: ./handler\n": nil,
	} {
		m, err := bundle.ParseManifest([]byte(text))
		if got := m.Registered(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestFilesOfSeveralModels(t *testing.T) {
	const manifest = "models: [{name: a, model: a.onnx}, {name: b, model: sub/b.onnx}]\nvalidation: {data: v}\n"
	for name, c := range map[string]struct {
		files []string
		wrong string
	}{
		"all":              {[]string{"a.onnx", "sub/b.onnx", "v/cat/1.png"}, ""},
		"a file of labels": {[]string{"a.onnx", "sub/b.onnx", "v"}, ""},
		"no model":         {[]string{"a.onnx", "v"}, `models[1].model: the bundle has no file "sub/b.onnx"`},
		"a directory":      {[]string{"a.onnx/x", "sub/b.onnx", "v"}, `models[0].model: "a.onnx" in the bundle is not a file`},
		"no data":          {[]string{"a.onnx", "sub/b.onnx"}, `validation.data: the bundle has no file "v"`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range append(c.files, bundle.ManifestFile) {
				path := filepath.Join(dir, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(manifest), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			b, err := bundle.OpenDir(dir)
			switch {
			case c.wrong != "":
				if !errors.Is(err, bundle.ErrManifest) || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("%v, want %q", err, c.wrong)
				}
			case err != nil || b.ModelPath() != filepath.Join(dir, "a.onnx") || b.Whole():
				t.Errorf("%+v, %v", b, err)
			}
		})
	}
}

func TestAlike(t *testing.T) {
	info := func(name string, shape ...int64) []tensor.Info {
		return []tensor.Info{{Name: name, Type: tensor.FP32, Shape: shape}}
	}
	of := func(image string) []bundle.ManifestModel {
		return []bundle.ManifestModel{{Name: "a", Image: image}, {Name: "b", Image: image}}
	}
	first := bundle.Signature{Inputs: info("x", -1, 3, 8, 8), Outputs: info("y", -1, 10)}
	for _, c := range []struct {
		image string
		other bundle.Signature
		wrong string
	}{
		{"", bundle.Signature{Inputs: first.Inputs, Outputs: info("classes", -1, 10)}, ""},
		{"8x8", bundle.Signature{Inputs: info("x", -1, 3, 4, 4), Outputs: first.Outputs}, ""},
		{"", bundle.Signature{Inputs: info("x", -1, 3, 4, 4), Outputs: first.Outputs}, "models[1] (b) has the inputs"},
		{"8x8", bundle.Signature{Inputs: info("z", -1, 3, 8, 8), Outputs: first.Outputs}, "models[1] (b) has the inputs"},
		{"", bundle.Signature{Inputs: first.Inputs, Outputs: info("y", -1, 9)}, "models[1] (b) has the outputs"},
		{"", bundle.Signature{Inputs: first.Inputs}, "models[1] (b) has the outputs"},
	} {
		err := bundle.Alike(of(c.image), []bundle.Signature{first, c.other})
		if (c.wrong == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%+v: %v", c.other, err)
		}
	}
}
