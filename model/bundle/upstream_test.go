package bundle_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/faas-infer/faas-infer/model/bundle"
)

func TestManifestsOfModelServers(t *testing.T) {
	for _, c := range []struct{ text, wrong string }{
		{"name: a\nengine: triton\nmodel: digits\n", ""},
		{"name: a\nengine: triton\nmodel: digits\nserver: /opt/tritonserver/bin/tritonserver --log-info=false\nmodel_name: d\nrequirements: r.txt\n", ""},
		{"name: a\nengine: tensorflow-serving\nmodel: saved_model\nserver: ./serve\n", ""},
		{"name: a\nengine: mlserver\nserver_url: https://models.example.com/team\nmodel_name: m\n", ""},
		{"name: a\nengine: triton\n", "model is missing; write the name of the directory in the bundle that has config.pbtxt"},
		{"name: a\nengine: mlserver\n", "has model-settings.json"},
		{"name: a\nengine: tensorflow-serving\nserver: tensorflow_model_server\n", "has saved_model.pb"},
		{"name: a\nengine: triton\nmodel: ../digits\n", `model is "../digits"`},
		{"name: a\nengine: triton\nmodel: digits\nhandler: h.py\n", "handler is for the engines tensorflow and python"},
		{"name: a\nengine: tensorflow-serving\nmodel: m\nrequirements: r.txt\n", "requirements is for engines that run Python"},
		{"name: a\nengine: triton\nmodel: m\nmodel_name: a/b\n", `model_name is "a/b"`},
		{"name: a\nengine: triton\nmodel: m\nserver: ../run now\n", `server is "../run now"`},
		{"name: a\nengine: triton\nmodel: m\nserver_url: http://h:8000\n", "model is for a server that the instance starts"},
		{"name: a\nengine: triton\nserver: tritonserver\nserver_url: http://h:8000\n", "server is for a server that the instance starts"},
		{"engine: triton\nserver_url: http://h:8000\n", "model_name is missing"},
		{"name: a\nengine: triton\nserver_url: h:8000\n", `server_url is "h:8000"`},
		{"name: a\nengine: triton\nserver_url: http://h/?a=b\n", `server_url is "http://h/?a=b"`},
		{"name: a\nengine: python\nhandler: h.py\nserver: tritonserver\n", "server is for the engines triton"},
		{"name: a\nengine: onnx\nmodel: m.onnx\nmodel_name: m\n", "model_name is for the engines triton"},
		{"name: a\nprocess: ./p\nserver_url: http://h\n", "process is for programs, server_url is for models"},
	} {
		m, err := bundle.ParseManifest([]byte(c.text))
		if c.wrong == "" && (err != nil || !m.Upstream() || m.InPython() || !m.Whole()) {
			t.Errorf("%q: %v", c.text, err)
		}
		if c.wrong != "" && (!errors.Is(err, bundle.ErrManifest) || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%q: %v, want %q", c.text, err, c.wrong)
		}
	}
}

func TestFilesOfModelServers(t *testing.T) {
	for name, c := range map[string]struct {
		manifest string
		files    []string
		wrong    string
	}{
		"Triton's":                     {"engine: triton\nmodel: m\n", []string{"m/config.pbtxt", "m/1/model.py"}, ""},
		"Triton's without a config":    {"engine: triton\nmodel: m\n", []string{"m/1/model.onnx"}, ""},
		"Triton's without a version":   {"engine: triton\nmodel: m\n", []string{"m/config.pbtxt", "m/model.onnx"}, `no directory of a version; put the model's file into "m/1"`},
		"a file for Triton":            {"engine: triton\nmodel: m.onnx\n", []string{"m.onnx"}, "is not a directory"},
		"nothing for Triton":           {"engine: triton\nmodel: m\n", nil, `the bundle has no directory "m"`},
		"a SavedModel":                 {"engine: tensorflow-serving\nmodel: m\n", []string{"m/saved_model.pb"}, ""},
		"the bundle itself":            {"engine: tensorflow-serving\nmodel: .\n", []string{"saved_model.pb"}, ""},
		"a SavedModel with a version":  {"engine: tensorflow-serving\nmodel: m\n", []string{"m/3/saved_model.pb"}, ""},
		"no SavedModel":                {"engine: tensorflow-serving\nmodel: m\n", []string{"m/3/weights"}, "it needs one that has saved_model.pb"},
		"MLServer's":                   {"engine: mlserver\nmodel: m\n", []string{"m/model-settings.json"}, ""},
		"not MLServer's":               {"engine: mlserver\nmodel: m\n", []string{"m/settings.json"}, "it needs one that has model-settings.json"},
		"requirements that are not in": {"engine: mlserver\nmodel: m\nrequirements: r.txt\n", []string{"m/model-settings.json"}, "requirements: the bundle has no file"},
		"a server at an address":       {"engine: triton\nserver_url: http://127.0.0.1:8000\n", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range append(c.files, bundle.ManifestFile) {
				text := ""
				if file == bundle.ManifestFile {
					text = "name: a\n" + c.manifest
				}
				path := filepath.Join(dir, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			b, err := bundle.OpenDir(dir)
			switch {
			case c.wrong != "":
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("%v, want %q", err, c.wrong)
				}
			case err != nil:
				t.Error(err)
			case b.ModelPath() != filepath.Join(dir, bundle.ManifestFile):
				t.Errorf("the model stands for %s", b.ModelPath())
			}
		})
	}
}

func TestWhatAServerCallsItsModel(t *testing.T) {
	for _, c := range []struct{ manifest, want string }{
		{"name: Spam filter, 2nd\nengine: triton\nmodel: m\n", "Spam-filter--2nd"},
		{"name: Spam\nengine: triton\nmodel: m\nmodel_name: ham\n", "ham"},
	} {
		if m, err := bundle.ParseManifest([]byte(c.manifest)); err != nil || m.Served() != c.want {
			t.Errorf("%q: %q, %v, want %q", c.manifest, m.Served(), err, c.want)
		}
	}
	files := fstest.MapFS{"m/2/model.onnx": {}, "m/10/model.onnx": {}, "m/0/x": {}, "m/12": {}, "m/9a/x": {}}
	if got := bundle.Version(files, "m"); got != "10" {
		t.Errorf("the latest version is %q, want 10", got)
	}
	if got := bundle.Version(files, "n"); got != "" {
		t.Errorf("of no directory the version is %q", got)
	}
}
