package importing

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/faas-infer/faas-infer/command/importing/documents"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// Whatever the settings of a model say, reading them ends with a function of a valid name, or with a reason.
func FuzzSettings(f *testing.F) {
	f.Add(0, tritonText)
	f.Add(0, `input [ { name: "{" dims: [ -1 ] }, # }`+"\n"+` < dims: 3 > ] version_policy { specific { versions: [9] } }`)
	f.Add(1, scoreSettings)
	f.Add(2, `{"model": {"modelName": "a", "serializedFile": "m.onnx", "handler": "image_classifier", "configFile": "c.yaml"}}`)
	f.Add(3, "bentoml_version: 1\nname: a\nmodule: bentoml.onnx\nlabels: {a: 1}\n")
	f.Add(4, kserveText)
	f.Fuzz(func(t *testing.T, which int, text string) {
		im := &Import{options: Options{Out: "out"}, Ignored: map[string]int{}}
		file := &fstest.MapFile{Data: []byte(text)}
		files := func(more map[string]*fstest.MapFile) *documents.Tree {
			return &documents.Tree{FS: fstest.MapFS(more), Given: "given", Close: func() error { return nil }}
		}
		model := &fstest.MapFile{Data: []byte("x")}
		var err error
		switch which % 5 {
		case 0:
			err = readTriton(im, files(map[string]*fstest.MapFile{tritonConfig: file, "1/model.onnx": model, "3/model.py": model}))
		case 1:
			err = readMLServer(im, files(map[string]*fstest.MapFile{mlserverSettings: file, "runtime.py": model}))
		case 2:
			err = readTorchServe(im, files(map[string]*fstest.MapFile{
				marManifest: file, "m.onnx": model, "c.yaml": file, classNames: file,
			}))
		case 3:
			err = readBentoML(im, files(map[string]*fstest.MapFile{bentoModel: file, "saved_model.onnx": model}))
		case 4:
			opened, wrong := files(map[string]*fstest.MapFile{"a.yaml": file}).Open("a.yaml")
			if wrong != nil {
				t.Fatal(wrong)
			}
			err = im.readManifests(opened, "a.yaml")
		}
		if err != nil {
			return
		}
		im.resolveArtefacts()
		im.finish()
		if _, err := im.stack(); err != nil {
			t.Error(err)
		}
		for _, m := range im.Models {
			switch m.State {
			case Ready, Unfinished:
				if !annotation.IsName(m.Function) || m.State == Unfinished && len(m.Steps) == 0 {
					t.Errorf("%+v", m)
				}
			case Refused, Described:
				if m.Why == "" || m.Function != "" && m.State == Described {
					t.Errorf("%+v", m)
				}
			default:
				t.Errorf("%+v", m)
			}
			for _, n := range m.Notes {
				if strings.ContainsAny(n.Value, "\n\x00") || len([]rune(n.Value)) > documents.MaxShown {
					t.Errorf("%+v", n)
				}
			}
		}
	})
}
