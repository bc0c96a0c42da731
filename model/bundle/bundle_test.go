package bundle

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/zoo"
)

func TestPath(t *testing.T) {
	for image, want := range map[string]string{
		"mnist":                              "mnist/latest",
		"mnist:latest":                       "mnist/latest",
		"mnist:v1.2_a-b":                     "mnist/v1.2_a-b",
		"team/mnist:2":                       "team/mnist/2",
		"registry.example.com/team/mnist":    "registry.example.com/team/mnist/latest",
		"registry.example.com:5000/mnist:v2": "registry.example.com:5000/mnist/v2",
		"localhost:5000/mnist":               "localhost:5000/mnist/latest",
		"docker.io/team/mnist:2":             "team/mnist/2",
		"docker.io/library/mnist":            "mnist/latest",
		"index.docker.io/library/mnist:v1":   "mnist/v1",
		"docker.io/library/a/b":              "library/a/b/latest",
		"docker.io":                          "docker.io/latest",
		"ghcr.io/docker.io/mnist":            "ghcr.io/docker.io/mnist/latest",
		"registry:5000/library/mnist":        "registry:5000/library/mnist/latest",
	} {
		if got, err := Path(image); err != nil || got != want {
			t.Errorf("%q is %q, %v, want %q", image, got, err, want)
		}
	}
}

func TestPathRefuses(t *testing.T) {
	for _, image := range []string{
		"", ":", ":v1", "mnist:", "/mnist", "mnist/", "a//b", ".", "..", "../mnist", "a/../../b", "mnist:..", "mnist:../../etc",
		".hidden", "a/.new-1", `a\b`, "a b", "a\x00b", "a\nb", "~root", "-a", "docker.io/", "docker.io/library/", "docker.io//etc", "docker.io/../a", "mnist@sha256:0123", "é", strings.Repeat("a", 256),
	} {
		if got, err := Path(image); !errors.Is(err, ErrImage) {
			t.Errorf("%q is taken as %q, %v", image, got, err)
		}
	}
}

// The directory of every image is strictly below the root.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"mnist", "a/b:c", "localhost:5000/x", "../a", "a:b:c", "a/./b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, image string) {
		path, err := Path(image)
		if err != nil {
			return
		}
		if !filepath.IsLocal(path) || filepath.Clean(path) != path || !strings.Contains(path, "/") || strings.Contains(path, "..") && strings.Contains("/"+path+"/", "/../") {
			t.Errorf("%q is %q", image, path)
		}
	})
}

func TestManifest(t *testing.T) {
	for _, test := range []struct{ text, words string }{
		{"name: a\nengine: onnx\nmodel: m.onnx\n", ""},
		{"name: a\nengine: onnx\nmodel: sub/m.onnx\ndescription: b\n", ""},
		{"", "neither a model nor a program"},
		{"engine: onnx\nmodel: m.onnx\n", ""},
		{"engine: onnx\nmodel: m.onnx\nannotations: {com.openfaas.slo.latency: 50ms, com.openfaas.slo.percentile: 95}\n", ""},
		{"engine: onnx\nmodel: m.onnx\nannotations: [a]\n", "line 3"},
		{"name: a\nmodel: m.onnx\n", "engine is missing"},
		{"name: a\nengine: caffe\nmodel: m\n", `engine is "caffe"`},
		{"name: a\nengine: onnx\n", "model is missing"},
		{"name: a\nengine: onnx\nmodel: ../m.onnx\n", `model is "../m.onnx"`},
		{"name: a\nengine: onnx\nmodel: /etc/passwd\n", `model is "/etc/passwd"`},
		{"name: a\nengine: onnx\nmodle: m.onnx\n", "modle"},
		{"name: [a]\nengine: onnx\nmodel: m.onnx\n", "line 1"},
		{"name: a\nname: b\n", "name"},
		{"\tnot yaml", "fields are name"},
		{"name: a\nprocess: ./handler\n", ""},
		{"name: a\nprocess: python3 app.py\nmode: http\nupstream_url: http://127.0.0.1:3000\nnetwork: private\nenv: {A: b, N: 1}\n", ""},
		{"name: a\nprocess: /bin/cat\nmode: serializing\n", ""},
		{"name: a\n", "neither a model nor a program"},
		{"name: a\nprocess: ./handler\nengine: onnx\n", "process is for programs"},
		{"name: a\nengine: onnx\nmodel: m\nenv: {A: b}\n", "env is for programs"},
		{"name: a\nmode: http\n", "process is missing"},
		{"name: a\nprocess: ' '\n", "process is missing"},
		{"name: a\nprocess: \"a\\0\"\n", "NUL"},
		{"name: a\nprocess: ../handler\n", `process is "../handler"`},
		{"name: a\nprocess: bin/../../handler x\n", "process is"},
		{"name: a\nprocess: cat\nmode: afterburn\n", `mode is "afterburn"`},
		{"name: a\nprocess: cat\nenv: {mode: htpp}\n", `env has mode "htpp"`},
		{"name: a\nprocess: cat\nenv: {'A=B': c}\n", `env has "A=B"`},
		{"name: a\nprocess: cat\nenv: {'': c}\n", `env has ""`},
		{"name: a\nprocess: cat\nenv: [A]\n", "line 3"},
		{"name: a\nprocess: cat\nnetwork: bridge\n", `network is "bridge"`},
		{"name: a\nprocess: cat\nupstream_url: http://127.0.0.1:1\n", "mode is streaming"},
		{"name: a\nprocess: cat\nmode: http\nupstream_url: 127.0.0.1:3000\n", "upstream_url is"},
		{"name: a\nprocess: cat\nmode: http\nupstream_url: ftp://x\n", "upstream_url is"},
		{"name: a\nprocess: cat\nmode: http\nupstream_url: 'http://'\n", "upstream_url is"},
	} {
		_, err := ParseManifest([]byte(test.text))
		switch {
		case test.words == "":
			if err != nil {
				t.Errorf("%q: %v", test.text, err)
			}
		case !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(), test.words):
			t.Errorf("%q: got %v, want %q", test.text, err, test.words)
		}
	}
}

func identity(t *testing.T) *model.Model {
	t.Helper()
	m, err := zoo.Make("identity", 1)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestWriteAndOpen(t *testing.T) {
	root := t.TempDir()
	for range 2 { // The second replaces the first.
		written, err := Write(root, "team/one:v1", Manifest{Name: "mine"}, identity(t))
		if err != nil {
			t.Fatal(err)
		}
		b, err := Open(root, "team/one:v1")
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(b, written) || b.Dir != filepath.Join(root, "team/one/v1") || b.Name != "mine" || b.Engine != "onnx" || b.Description == "" {
			t.Errorf("wrote %+v, opened %+v", written, b)
		}
		if _, err := model.ReadFile(b.ModelPath()); err != nil {
			t.Error(err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(root, "team/one"))
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestOpenErrors(t *testing.T) {
	root := t.TempDir()
	put := func(path, text string) {
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	const manifest = "name: a\nengine: onnx\nmodel: m.onnx\n"
	put("bad/latest/bundle.yaml", "engine: onnx\n")
	put("plain/v1/handler", "")
	put("gone/v1/bundle.yaml", "name: a\nprocess: ./handler\n")
	put("dull/v1/bundle.yaml", "name: a\nprocess: ./handler\n")
	put("dull/v1/handler", "")
	put("dir/v1/bundle.yaml", "name: a\nprocess: bin/handler\n")
	put("dir/v1/bin/handler/x", "")
	put("empty/latest/bundle.yaml", manifest)
	put("folder/latest/bundle.yaml", manifest)
	put("folder/latest/m.onnx/x", "")
	put("secret", "outside every bundle")
	put("link/latest/bundle.yaml", manifest)
	if err := os.Symlink(filepath.Join(root, "secret"), filepath.Join(root, "link/latest/m.onnx")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(root, "etc")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		image string
		want  error
		words string
	}{
		{"../x", ErrImage, ".."},
		{"absent", ErrNotFound, "faas-infer bundle"},
		{"plain:v1", ErrNotFound, "plain/v1 has no bundle.yaml; write one of three lines, for a program `name: plain`"},
		{"gone:v1", ErrManifest, `no file "handler"`},
		{"dull:v1", ErrManifest, "chmod +x"},
		{"dir:v1", ErrManifest, "is not a file"},
		{"bad", ErrManifest, "model is missing"},
		{"empty", ErrManifest, `no file "m.onnx"`},
		{"folder", ErrManifest, "is not a file"},
		{"link", ErrManifest, "m.onnx"},
		{"etc/x", nil, "escapes"},
	} {
		_, err := Open(root, test.image)
		if err == nil || test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%s: got %v, want %v with %q", test.image, err, test.want, test.words)
		}
	}
	if _, err := Open(filepath.Join(root, "nowhere"), "x"); err == nil {
		t.Error("a root that is not there was opened")
	}
}

func TestFile(t *testing.T) {
	b, err := Write(t.TempDir(), "one", Manifest{}, identity(t))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.File("model.onnx"); err != nil || got != b.ModelPath() {
		t.Errorf("%s, %v", got, err)
	}
	for _, name := range []string{"", ".", "absent.onnx", "../latest/model.onnx", "/etc/passwd"} {
		if got, err := b.File(name); err == nil {
			t.Errorf("%q is %s", name, got)
		}
	}
}

func TestWriteKeepsWhatIsThere(t *testing.T) {
	root := t.TempDir()
	m := identity(t)
	if _, err := Write(root, "a:v1", Manifest{}, m); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(root, "a/v1:x", Manifest{}, m); err == nil || !strings.Contains(err.Error(), "inside the bundle") {
		t.Errorf("a bundle in a bundle: %v", err)
	}
	if _, err := Write(root, "b/latest:x", Manifest{}, m); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(root, "b", Manifest{}, m); err == nil || !strings.Contains(err.Error(), "holds other files") {
		t.Errorf("a bundle in the place of others: %v", err)
	}
	// A failed write leaves the old bundle in place.
	if _, err := WriteFile(root, "a:v1", Manifest{}, filepath.Join(root, "absent.onnx")); err == nil {
		t.Error("a file that is not there became a bundle")
	}
	if _, err := Open(root, "a:v1"); err != nil {
		t.Error(err)
	}
}

func TestWriteFile(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "m.onnx")
	p := proto.Clone(identity(t).Proto()).(*onnxpb.ModelProto)
	p.Graph.Initializer = []*onnxpb.TensorProto{{
		Name: proto.String("w"), Dims: []int64{4}, DataType: proto.Int32(1), DataLocation: onnxpb.TensorProto_EXTERNAL.Enum(),
		ExternalData: []*onnxpb.StringStringEntryProto{{Key: proto.String("location"), Value: proto.String("sub/w.bin")}},
	}}
	text, err := proto.Marshal(p)
	if err := errors.Join(err, os.WriteFile(path, text, 0o644), os.Mkdir(filepath.Join(dir, "sub"), 0o755),
		os.WriteFile(filepath.Join(dir, "sub/w.bin"), make([]byte, 16), 0o644)); err != nil {
		t.Fatal(err)
	}
	b, err := WriteFile(root, "with/weights", Manifest{}, path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := model.ReadFile(b.ModelPath()); err != nil {
		t.Errorf("the weights were not copied: %v", err)
	}

	p.Graph.Input[0].Type.GetTensorType().Shape.Dim[0].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: 1}
	text, err = proto.Marshal(p)
	if err := errors.Join(err, os.WriteFile(path, text, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := WriteFile(root, "fixed", Manifest{}, path); err != nil { // It takes one request an execution.
		t.Errorf("a model without a batch dimension: %v", err)
	}
}

// A manifest without a name gets the image's name, or the directory's.
func TestNameIsTheImages(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "registry.example.com", "team", "spam", "v1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{ManifestFile: "engine: onnx\nmodel: m.onnx\nannotations: {a: b}\n", "m.onnx": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := Open(root, "registry.example.com/team/spam:v1")
	if err != nil || b.Name != "spam" || b.Annotations["a"] != "b" {
		t.Errorf("%+v, %v", b, err)
	}
	if b, err := OpenDir(dir); err != nil || b.Name != "v1" {
		t.Errorf("%+v, %v", b, err)
	}
	for text, want := range map[string]string{
		"engine: onnx\nmodel: m.onnx\n": "1.5", "name: other\nengine: onnx\nmodel: m.onnx\n": "other", "{engine: onnx, model: m.onnx}": "v1",
		"---\nengine: onnx\nmodel: m.onnx\n": "v1",
	} {
		if err := errors.Join(os.WriteFile(filepath.Join(dir, ManifestFile), []byte(text), 0o644), WriteName(dir, "1.5")); err != nil {
			t.Fatal(err)
		}
		if b, err := OpenDir(dir); err != nil || b.Name != want {
			t.Errorf("%q: %+v, %v, want the name %s", text, b, err, want)
		}
	}
}

// A manifest above the maximum is refused instead of cut.
// A manifest that is a pipe or a device is refused, and nobody waits for it.
func TestManifestThatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, ManifestFile)
	for _, prepare := range []func() error{
		func() error { return syscall.Mkfifo(name, 0o644) },
		func() error { return os.Mkdir(name, 0o755) },
	} {
		if err := prepare(); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenDir(dir); !errors.Is(err, ErrManifest) {
			t.Errorf("error %v", err)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

func TestManifestAboveTheMaximum(t *testing.T) {
	dir := t.TempDir()
	text := "name: a\nengine: onnx\nmodel: m.onnx\ndescription: " + strings.Repeat("x", maxManifest) + "\n"
	if err := os.WriteFile(filepath.Join(dir, ManifestFile), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(dir); err == nil || !strings.Contains(err.Error(), "maximum") {
		t.Errorf("error %v", err)
	}
}
