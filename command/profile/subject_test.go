package profile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/zoo"
)

func TestNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sentiment")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for file, want := range map[string]string{
		"model.onnx": "model", "/a/b/resnet-50.v2.onnx": "resnet-50.v2", "plain": "plain",
		"/a/spam/bundle.yaml": "spam", "bundle.yaml": "sentiment", "../sentiment/bundle.yaml": "sentiment",
	} {
		if got := SubjectName(file); got != want {
			t.Errorf("%s is called %q, want %q", file, got, want)
		}
	}
}

func TestPreparedDir(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/some/cache")
	for given, want := range map[string]string{"": "/some/cache/faas-infer/prepared", "here": "here"} {
		if got, err := PreparedDir(given); got != want || err != nil {
			t.Errorf("%q: %q, %v", given, got, err)
		}
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if _, err := PreparedDir(""); err == nil || !strings.Contains(err.Error(), "--prepared") {
		t.Errorf("without a home: %v", err)
	}
	if _, err := NewSubjects(""); err == nil {
		t.Error("models are made ready, and nobody knows where")
	}
}

// The paper's Table 1 lists models of the zoo, each by a name that the zoo knows.
func TestTable(t *testing.T) {
	names := SubjectTable()
	if len(names) == 0 || len(names) >= len(zoo.Names()) {
		t.Errorf("%d of the %d models of the zoo", len(names), len(zoo.Names()))
	}
	for _, name := range names {
		if _, ok := zoo.Find(name); !ok || !slices.Contains(zoo.Names(), name) {
			t.Errorf("the zoo has no %s", name)
		}
	}
}

func models(t *testing.T) *Subjects {
	t.Helper()
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	m, err := NewSubjects(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// Get prepares a model of the zoo like a file. Close removes the zoo's file, and the
// prepared model stays.
func TestGet(t *testing.T) {
	m := models(t)
	made, err := m.Get("mnist")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mine.onnx")
	if err := os.Rename(made.File, file); err != nil {
		t.Fatal(err)
	}
	given, err := m.Get(file)
	if err != nil {
		t.Fatal(err)
	}
	if made.Name != "mnist" || given.Name != "mine" || given.File != file || given.Prepared.Dir != made.Prepared.Dir {
		t.Errorf("%s of %s, then %s of %s", made.Name, made.Prepared.Dir, given.Name, given.Prepared.Dir)
	}
	for _, s := range []*Subject{made, given} {
		original, err := s.Original()
		if err != nil || len(original.Unknown) != 0 || len(s.Optimised.Unknown) != 0 || len(s.Model.Inputs()) != 1 {
			t.Errorf("%s: %v, %v and %v are unknown", s.Name, err, original.Unknown, s.Optimised.Unknown)
		}
	}
	m.Close()
	if _, err := os.Stat(filepath.Dir(made.File)); !os.IsNotExist(err) {
		t.Errorf("what was made is there still: %v", err)
	}
	if _, err := os.Stat(made.Prepared.GraphFile()); err != nil {
		t.Error(err)
	}
}

func TestGetRefuses(t *testing.T) {
	m := models(t)
	text := filepath.Join(t.TempDir(), "notes.onnx")
	if err := os.WriteFile(text, []byte("no model"), 0o644); err != nil {
		t.Fatal(err)
	}
	for argument, says := range map[string]string{
		"alexnett":    "neither a file nor a model of the zoo: give",
		text:          "notes.onnx",
		t.TempDir():   "",
		text + ".not": "notes.onnx.not is neither",
	} {
		if s, err := m.Get(argument); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %+v, %v", argument, s, err)
		}
	}
}
