package onnxruntime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

func TestPrepareKeepsTheOutputs(t *testing.T) {
	for _, name := range []string{"identity", "mnist"} {
		path, cache := zooFile(t, name), t.TempDir()
		p, err := Prepare(path, cache, PrepareOptions{})
		if err != nil {
			t.Fatal(err)
		}
		plain, prepared := mustOpen(t, Options{Model: path}), mustOpen(t, Options{Prepared: p.Dir})
		x := plain.signature.sample(3)
		want, err := plain.Run(context.Background(), 3, x)
		if err != nil {
			t.Fatal(err)
		}
		got, err := prepared.Run(context.Background(), 3, x)
		if err != nil {
			t.Fatal(err)
		}
		if err := same(want, got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if fmt.Sprint(prepared.Inputs(), prepared.Outputs()) != fmt.Sprint(plain.Inputs(), plain.Outputs()) {
			t.Errorf("%s: the prepared model takes %v, gives %v", name, prepared.Inputs(), prepared.Outputs())
		}
		entries, err := os.ReadDir(cache)
		if err != nil || len(entries) != 1 {
			t.Errorf("%s: the cache holds %v, %v", name, entries, err)
		}
	}
}

// The hash of the model can be read without the library, and only of what was prepared.
func TestPreparedContent(t *testing.T) {
	path, cache := zooFile(t, "identity"), t.TempDir()
	p, err := Prepare(path, cache, PrepareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := model.ContentHash(path)
	if got := PreparedContent(p.Dir); err != nil || got != want {
		t.Errorf("%q, %v, not %q", got, err, want)
	}
	if PreparedContent("") != "" || PreparedContent(cache) != "" {
		t.Error("other directories have a hash, too")
	}
}

// What instances map is read from the manifest only: it may be of another CPU or library.
func TestMappedWeights(t *testing.T) {
	write := func(text string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, manifestFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, weightsFile), []byte("abc"), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for text, want := range map[string]int64{
		`{"files": {"model.onnx": 5, "weights.bin": 7}, "format": "packed"}`: 7, `{"files": {"model.onnx": 5}, "format": "packed"}`: 0,
		`{"files": {"model.ort": 5, "model.onnx": 5, "weights.bin": 7}, "format": "ort", "packed_beside": true}`: 0,
		`{"format": "ort", "packed_beside": true}`:                                                               0, `{"format": "packed"}`: 3, `{"format": "plain"}`: 0, `{`: 0, `{}`: 0,
	} {
		if got := MappedWeights(write(text)); got != want {
			t.Errorf("%d bytes of %s", got, text)
		}
	}
	if MappedWeights("") != 0 || MappedWeights(t.TempDir()) != 0 {
		t.Error("other directories have weights, too")
	}
}

func TestPrepareOnlyOnce(t *testing.T) {
	path, cache := zooFile(t, "identity"), t.TempDir()
	// Two that meet: each gets a whole result, the same one.
	var wg sync.WaitGroup
	dirs := make([]string, 4)
	for i := range dirs {
		wg.Go(func() {
			p, err := Prepare(path, cache, PrepareOptions{})
			if err != nil {
				t.Error(err)
			}
			dirs[i] = p.Dir
		})
	}
	wg.Wait()
	manifest := filepath.Join(dirs[0], manifestFile)
	before, err := os.Stat(manifest)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Prepare(path, cache, PrepareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(manifest)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("it was prepared again: %v", err)
	}
	for _, dir := range dirs {
		if dir != p.Dir {
			t.Errorf("prepared in %s and %s", dir, p.Dir)
		}
	}
}

// TestPrepareReplacesWhatIsNotWhole: a directory without a manifest.
func TestPrepareReplacesWhatIsNotWhole(t *testing.T) {
	path, cache := zooFile(t, "identity"), t.TempDir()
	key, _, err := keyOf(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(cache, key, "rest"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := Prepare(path, cache, PrepareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mustOpen(t, Options{Prepared: p.Dir})
}

func TestPrepareRefuses(t *testing.T) {
	cache := t.TempDir()
	wrong := filepath.Join(t.TempDir(), "wrong.onnx")
	if err := os.WriteFile(wrong, []byte("wrong"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{wrong, filepath.Join(cache, "none.onnx")} {
		if _, err := Prepare(path, cache, PrepareOptions{}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v", path, err)
		}
	}
	if entries, err := os.ReadDir(cache); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestReadPreparedRefusesOtherHosts(t *testing.T) {
	p, err := Prepare(zooFile(t, "identity"), t.TempDir(), PrepareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(p.Dir, manifestFile)
	good, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	for wrong, change := range map[string][2]string{
		"is for the CPU": {p.CPU, "another"},
		"ONNX Runtime 0": {`"engine": "` + p.Engine, `"engine": "0`},
		"unknown format": {`"format": "` + string(p.Format), `"format": "x`},
		"manifest.json":  {"{", "["},
	} {
		if err := os.WriteFile(manifest, []byte(strings.Replace(string(good), change[0], change[1], 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Options{Prepared: p.Dir, Threads: 1}); !errors.Is(err, ErrNotPrepared) || !strings.Contains(err.Error(), wrong) {
			t.Errorf("got %v, want %q", err, wrong)
		}
	}
}

// A prepared model is found without its model, and only if its files are as they were written.
func TestFindPrepared(t *testing.T) {
	cache := t.TempDir()
	if _, err := FindPrepared(cache); !errors.Is(err, ErrNotPrepared) {
		t.Errorf("an empty directory: %v", err)
	}
	p, err := Prepare(zooFile(t, "mnist"), cache, PrepareOptions{Lean: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(cache, ".unfinished"), os.DirFS(p.Dir)); err != nil {
		t.Fatal(err)
	}
	found, err := FindPrepared(cache)
	if err != nil || found.Dir != p.Dir || len(found.Files) == 0 {
		t.Fatalf("%+v, %v, not %s", found, err, p.Dir)
	}
	for name, size := range found.Files {
		file := filepath.Join(p.Dir, name)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, size/2); err != nil {
			t.Fatal(err)
		}
		if _, err := FindPrepared(cache); !errors.Is(err, ErrNotPrepared) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is cut short: %v", name, err)
		}
		if err := errors.Join(os.Remove(file), os.Symlink("/dev/zero", file)); err != nil {
			t.Fatal(err)
		}
		if _, err := FindPrepared(cache); !errors.Is(err, ErrNotPrepared) {
			t.Errorf("%s is a link: %v", name, err)
		}
		if err := errors.Join(os.Remove(file), os.WriteFile(file, text, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	again, err := FindPrepared(cache)
	if err != nil || again.Dir != p.Dir {
		t.Errorf("it is whole again: %v", err)
	}
}

func TestDescribeCPU(t *testing.T) {
	const info = "processor : 0\nmodel name\t: Some CPU\nflags\t: sse avx\n\nprocessor : 1\nmodel name : Other\n"
	got := describeCPU(info)
	if !strings.HasPrefix(got, "Some CPU ") || got == describeCPU(strings.Replace(info, "avx", "avx2", 1)) {
		t.Errorf("got %q", got)
	}
}

// TestFormChosen states the rule by which a format is chosen.
func TestFormChosen(t *testing.T) {
	ms := func(load, run float64) measurement {
		return measurement{load: time.Duration(load * 1e6), run: time.Duration(run * 1e6)}
	}
	for _, c := range []struct {
		m, kept measurement
		want    bool
	}{
		{ms(5, 70), ms(8, 70), false},  // a little sooner
		{ms(5, 70), ms(30, 70), true},  // much sooner
		{ms(5, 90), ms(30, 70), false}, // but slow
		{ms(50, 70), ms(5, 90), true},  // in place of a slow one
		{ms(0.1, 1), ms(5, 1), false},  // 50 times as soon, but of no account
	} {
		if got := c.m.better(c.kept); got != c.want {
			t.Errorf("%v/%v in place of %v/%v: %v", c.m.load, c.m.run, c.kept.load, c.kept.run, got)
		}
	}
}

// Link refuses a small model. A large linked model gives the same answers, and Prepare
// replaces it.
func TestLink(t *testing.T) {
	cache := t.TempDir()
	small, large := zooFile(t, "mnist"), zooFile(t, "vggnet")
	if _, err := Link(small, cache, "small", nil); !errors.Is(err, ErrSmall) {
		t.Errorf("a small model: %v", err)
	}
	content, err := model.ContentHash(large)
	if err != nil {
		t.Fatal(err)
	}
	linked, err := Link(large, cache, content, nil)
	if err != nil {
		t.Fatal(err)
	}
	if linked.Format != FormatPlain || linked.GraphFile() != "" {
		t.Errorf("%+v", linked)
	}
	engine, err := Open(Options{Prepared: linked.Dir, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	// An instance does not warm up with a run that takes long.
	if info, err := os.Stat(large); err != nil || engine.ExpectedRun() != time.Duration(float64(info.Size())/readingRate*1e9) {
		t.Errorf("a run is expected to take %v; %v", engine.ExpectedRun(), err)
	}
	if _, err := engine.Run(t.Context(), 1, engine.signature.sample(1)); err != nil {
		t.Error(err)
	}
	whole, err := Prepare(large, cache, PrepareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(linked.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link is left: %v", err)
	}
	// A provider may still name the link.
	if got, err := ReadPrepared(linked.Dir); err != nil || got.Dir != whole.Dir || PreparedContent(linked.Dir) != content {
		t.Errorf("the link leads to %+v, %v", got, err)
	}
	if again, err := Link(large, cache, content, nil); err != nil || again.Dir != whole.Dir {
		t.Errorf("a prepared model is linked: %+v, %v", again, err)
	}
}

// The outputs that the engine infers without the weights are those that it infers with them.
func TestOutputsWithoutWeights(t *testing.T) {
	for _, name := range []string{"mnist", "lstm-2365", "dssm-2365", "mobilenet", "ssd"} {
		path := zooFile(t, name)
		m, err := model.ReadOutline(path)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := outputsOf(m)
		want, err := new(signature).loadOutputs(path)
		if err != nil || !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %t; with the weights %v, %v", name, got, ok, want, err)
		}
	}
}

// What is prepared with given sizes is prepared for these alone: the model may run with some sizes and not
// with others, and what is found with some is not true of others.
func TestSizesAreIndependent(t *testing.T) {
	path := modelFile(t, `initializer { name: "w" data_type: 1 dims: 4 dims: 2 float_data: [1, 2, 3, 4, 5, 6, 7, 8] } node { op_type: "MatMul" input: ["x", "w"] output: "y" }`+
		value("input", "x", float, "n", "t", "k")+value("output", "y", float, "n", "t", "2"))
	cache, dirs := t.TempDir(), map[string]bool{}
	for _, shapes := range []tensor.Shapes{{"x": {1, 3, 4}}, {"x": {1, 7, 4}}, {"x": {1, 3, 4}}} {
		p, err := Prepare(path, cache, PrepareOptions{Shapes: shapes})
		if err != nil {
			t.Fatal(err)
		}
		if p.Shapes.String() != shapes.String() {
			t.Errorf("with %s it is what ran with %s", shapes, p.Shapes)
		}
		dirs[p.Dir] = true
	}
	if len(dirs) != 2 {
		t.Errorf("two sizes have %d directories", len(dirs))
	}
	if _, err := Prepare(path, cache, PrepareOptions{Shapes: tensor.Shapes{"x": {1, 3, 5}}}); err == nil {
		t.Error("sizes that do not run are taken, because others run")
	}
}
