package importing

import (
	"archive/zip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/go-sdk/stack"

	"github.com/faas-infer/faas-infer/command/importing/documents"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// place is a directory with these files; a text that is "ONNX" stands for a small model.
func place(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content(t, text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// content returns the bytes that a text of [place] stands for.
func content(t testing.TB, text string) []byte {
	t.Helper()
	if text != "ONNX" {
		return []byte(text)
	}
	m, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := m.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// archive is a zip file with these files.
func archive(t testing.TB, files map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.mar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	for name, text := range files {
		w, err := z.Create(name)
		if err == nil {
			_, err = w.Write(content(t, text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// read reads paths, into a directory that does not exist yet.
func read(t testing.TB, o Options, paths ...string) *Import {
	t.Helper()
	im, err := tryRead(t, o, paths...)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

func tryRead(t testing.TB, o Options, paths ...string) (*Import, error) {
	t.Helper()
	o.Paths = paths
	if o.Out == "" {
		o.Out = filepath.Join(t.TempDir(), "out")
	}
	im, err := Read(o)
	if err == nil {
		t.Cleanup(func() {
			if err := im.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return im, err
}

// one returns the only model.
func one(t testing.TB, im *Import) *Model {
	t.Helper()
	if len(im.Models) != 1 {
		t.Fatalf("%d models: %s", len(im.Models), describe(im))
	}
	return im.Models[0]
}

// describe lists the models for a failed test.
func describe(im *Import) string {
	var b strings.Builder
	for _, m := range im.Models {
		fmt.Fprintf(&b, "%s %s: %s %s\n", m.Function, m.Name, m.State, m.Why)
		for _, n := range m.Notes {
			fmt.Fprintf(&b, "  %s %q: %s, %s\n", n.Field, n.Value, n.Fate, n.What)
		}
		for _, s := range m.Steps {
			fmt.Fprintf(&b, "  to do: %s\n", s)
		}
	}
	return b.String()
}

// fates checks what became of fields: the fate and a part of what the report says.
func (m *Model) fates(t testing.TB, want map[string]string) {
	t.Helper()
	for field, says := range want {
		fate, what, _ := strings.Cut(says, ": ")
		if !slices.ContainsFunc(m.Notes, func(n Note) bool {
			return n.Field == field && n.Fate == fate && strings.Contains(n.What, what)
		}) {
			t.Errorf("%s is not %q: %+v", field, says, m.Notes)
		}
	}
}

// write writes an import and returns the functions in its stack.yml as faas-cli reads them.
func write(t testing.TB, im *Import) map[string]stack.Function {
	t.Helper()
	if err := im.Write(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(im.options.Out, StackFile))
	if err != nil {
		t.Fatal(err)
	}
	services, err := stack.ParseYAMLData(text, "", "", true)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, m := range im.Models {
		if m.State != Ready || !m.Bundled() {
			continue
		}
		if _, err := bundle.OpenDir(filepath.Join(im.options.Out, m.Function)); err != nil {
			t.Error(err)
		}
	}
	return services.Functions
}

func annotations(f stack.Function) map[string]string {
	if f.Annotations == nil {
		return nil
	}
	return *f.Annotations
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"mnist": "mnist", "ResNet_50.v2": "resnet-50-v2", "__": "model", "": "model", "été": "t",
		strings.Repeat("a", 62) + "-b": strings.Repeat("a", 62), "-a--b-": "a-b",
	} {
		if got := functionName(name); got != want {
			t.Errorf("%q becomes %q, not %q", name, got, want)
		}
	}
}

// What a source says is no command in the steps that a user copies.
func TestQuoted(t *testing.T) {
	for word, want := range map[string]string{
		"gs://a/b": "gs://a/b", "a b": "'a b'", "$(x)": "'$(x)'", "it's": `'it'\''s'`, "": "''", "x=float32[?,3]": "'x=float32[?,3]'",
	} {
		if got := quoted(word); got != want {
			t.Errorf("%q is %s, not %s", word, got, want)
		}
	}
}

// Models of one name get functions of different names, and the report says so.
func TestOneNameTwice(t *testing.T) {
	im := read(t, Options{}, place(t, map[string]string{
		"a/model.py": "", "a/model-settings.json": `{"name": "iris", "implementation": "model.A", "inputs": [{}], "outputs": [{}]}`,
		"b/model.py": "", "b/model-settings.json": `{"name": "Iris", "implementation": "model.A", "inputs": [{}], "outputs": [{}]}`,
	}))
	if len(im.Models) != 2 || im.Models[0].Function != "iris" || im.Models[1].Function != "iris-2" {
		t.Fatal(describe(im))
	}
	im.Models[1].fates(t, map[string]string{"name": "changed: another model is called iris"})
}

// Paths that cannot be read are errors that say what would be.
func TestUnreadable(t *testing.T) {
	garbage := string([]byte{0, 1, 2, 0xff, 0xfe, 0x80, 10, 0})
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1,
			c-1, c-1, c-1)
	}
	files := place(t, map[string]string{
		"garbage.yaml": garbage, "bomb.yaml": bomb, "empty.yaml": "", "other.yaml": "a: 1\n", "large.yaml": strings.Repeat("#", documents.MaxText+1),
		"pod.yaml": "apiVersion: v1\nkind: " +
			"Pod\n", "empty/.keep": "", "cut.mar": "PK\x03\x04 and no more", "t.tgz": "\x1f\x8b\x08\x00",
	})
	for _, c := range []struct{ source, path, want string }{
		{"", "none", "no such file"}, {"", "garbage.yaml", "is no YAML"}, {"", "bomb.yaml", "excessive aliasing"},
		{"", "empty.yaml", "no objects of Kubernetes"}, {"", "other.yaml", "no objects of Kubernetes"}, {"", "large.yaml", "more than 4 MiB"},
		{"", "pod.yaml", "no model was found; it has other objects: Pod"}, {"", "empty", "it is of no known source"},
		{"", "cut.mar", "no whole zip archive"}, {"", "t.tgz", "tar xzf"}, {Triton, "empty", "it needs a model repository"},
		{Triton, "pod.yaml", "it is no triton"}, {KServe, "empty", "give the YAML files"},
	} {
		im, err := tryRead(t, Options{Source: c.source}, filepath.Join(files, c.path))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, %v", c.source, c.path, im, err)
		}
	}
}

// An archive whose entries lead out of it, or that would fill a disk, is not unpacked.
func TestHostileArchives(t *testing.T) {
	manifest := `{"model": {"modelName": "a", "serializedFile": "m.onnx", "handler": "base_handler"}}`
	for name, want := range map[string]string{
		"../m.onnx": "leads out of the archive", "/m.onnx": "leads out of the archive", "a/../../m": "leads out of the archive", `..\m`: "leads out of the archive",
	} {
		_, err := tryRead(t, Options{}, archive(t, map[string]string{marManifest: manifest, name: "x"}))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	path := archive(t, map[string]string{marManifest: manifest, "m.onnx": "x"})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The sizes in the directory of the archive are a lie, as in an archive that unpacks without end.
	at := strings.LastIndex(string(text), "PK\x01\x02")
	for i := range 4 {
		text[at+24+i] = 0xfe
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := tryRead(t, Options{}, path); err == nil || !strings.Contains(err.Error(), "times its") {
		t.Error(err)
	}
}

// What is there is not overwritten, but with replace, and then only what the import writes.
func TestWrite(t *testing.T) {
	from := place(t, map[string]string{"mnist/1/model.onnx": "ONNX"})
	out := filepath.Join(t.TempDir(), "deep", "out")
	o := Options{Out: out, SLO: 200 * time.Millisecond}
	f := write(t, read(t, o, from))["mnist"]
	if f.Image != "mnist:latest" || !f.SkipBuild || annotations(f)["com.openfaas.slo.latency"] != "200ms" {
		t.Errorf("%+v", f)
	}
	if err := os.WriteFile(filepath.Join(out, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	im := read(t, o, from)
	if err := im.Write(t.Context(), false); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	if err := im.Write(t.Context(), true); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(out, "mine")); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(out), ".import-*")); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

// Replacing deletes neither the source nor what no import made, and says why.
func TestReplaceKeepsTheSource(t *testing.T) {
	root := place(t, map[string]string{"repo/mnist/1/model.onnx": "ONNX", "other/mnist/weights": "mine"})
	repo := filepath.Join(root, "repo")
	link := filepath.Join(root, "link")
	if err := os.Symlink(filepath.Join(repo, "mnist"), link); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, out string
		want      error
	}{
		{"the source", repo, ErrOverSource},
		{"above the source", root, ErrOverSource},
		{"in the source", filepath.Join(repo, "mnist", "1"), ErrOverSource},
		{"a link into the source", link, ErrOverSource},
		{"a directory of the user", filepath.Join(root, "other"), ErrForeign},
	} {
		t.Run(test.name, func(t *testing.T) {
			im := read(t, Options{Out: test.out, SLO: time.Second}, repo)
			if err := im.Write(t.Context(), true); !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
	for _, kept := range []string{"repo/mnist/1/model.onnx", "other/mnist/weights"} {
		if _, err := os.Stat(filepath.Join(root, kept)); err != nil {
			t.Error(err)
		}
	}
	// A directory of manifests' files is a source, too.
	o := Options{Paths: []string{"-"}, Files: map[string]string{"gs://models": repo}}
	if err := checkApart(link, o, nil); !errors.Is(err, ErrOverSource) {
		t.Error(err)
	}
}

// What an import made is replaced: bundles, and the files to convert.
func TestReplaceAnImport(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	mar := archive(t, map[string]string{
		"MAR-INF/MANIFEST.json": `{"model":{"modelName":"scripted","serializedFile":"m.pt","handler":"image_classifier"}}`,
		"m.pt":                  "x"})
	o := Options{Out: out, SLO: time.Second}
	write(t, read(t, o, place(t, map[string]string{"mnist/1/model.onnx": "ONNX"}), mar))
	im := read(t, o, place(t, map[string]string{"mnist/1/model.onnx": "ONNX"}), mar)
	if err := im.Write(t.Context(), true); err != nil {
		t.Error(err)
	}
	for _, made := range []string{StackFile, "mnist/bundle.yaml", asideDir + "/scripted/m.pt"} {
		if _, err := os.Stat(filepath.Join(out, made)); err != nil {
			t.Error(err)
		}
	}
}

// The values of the source are not replaced by variables of whoever deploys.
func TestDollars(t *testing.T) {
	t.Setenv("HOME_OF_TEST", "wrong")
	dir := place(t, map[string]string{"a.yaml": `
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: a}
spec: {predictor: {containers: [{image: "registry/a:1", env: [{name: A, value: "${HOME_OF_TEST} $(B) $C"}]}]}}
`})
	if f := write(t, read(t, Options{}, filepath.Join(dir, "a.yaml")))["a"]; f.Environment["A"] != "${HOME_OF_TEST} $(B) $C" {
		t.Errorf("%+v", f)
	}
}
