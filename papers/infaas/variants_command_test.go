package infaas

import (
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command/commandtest"
	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
)

// withModels makes a bundle of models of the zoo, each with its own seed.
func withModels(t *testing.T, manifest string, models ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i, name := range models {
		if err := os.Rename(commandtest.ZooModel(t, name, uint64(i+1)), filepath.Join(dir, string(rune('a'+i))+".onnx")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "bundle.yaml"), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// labelledBy writes validation data into a bundle, with the answer of its model a.onnx to most rows.
func labelledBy(t *testing.T, dir string) {
	t.Helper()
	labels := classesOf(t, filepath.Join(dir, "a.onnx"), 60)
	// Most answers of a random model are one class, so that is the one in the middle.
	slices.Sort(labels)
	labels = slices.Repeat(labels[30:31], 60)
	if err := os.Rename(npz(t, labels), filepath.Join(dir, "v.npz")); err != nil {
		t.Fatal(err)
	}
}

// files lists a directory.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func quantizer(t *testing.T) {
	t.Helper()
	if e, err := environment.Find(t.Context(), "quantise", ""); err != nil || !e.Made() {
		t.Fatalf("run scripts/python.sh quantise first (%v)", err)
	}
}

// Variants are made and measured once, and what an earlier run left half-written goes. A quantizer that is
// killed leaves nothing, and a new try works.
func TestModelVariants(t *testing.T) {
	quantizer(t)
	dir := withModels(t, "name: digits\nmodels: [{name: a, model: a.onnx, accuracy: 3}]\nvalidation: {data: v.npz}\n", "mnist")
	labelledBy(t, dir)
	out := filepath.Join(dir, "variants")
	left := filepath.Join(out, ".new-1", "static.onnx")
	if err := errors.Join(os.MkdirAll(filepath.Dir(left), 0o755), os.WriteFile(left, nil, 0o644), os.WriteFile(filepath.Join(out, "mine.onnx"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	const killed = "model a: quantise.py ended without a result: was killed by SIGKILL"
	t.Setenv(environment.ReadyEnv, killedQuantizer(t))
	if _, err := execute(t, "model", "variants", dir); err == nil || !strings.Contains(err.Error(), killed) {
		t.Errorf("%v", err)
	}
	if got := files(t, out); !slices.Equal(got, []string{".lock", "mine.onnx"}) {
		t.Errorf("left behind: %q", got)
	}
	t.Setenv(environment.ReadyEnv, "")
	f := figures(t, "model", "variants", dir)
	if f["a.accuracy"] < 50 || f["a.latency_ms"] <= 0 || f["register_s"] <= 0 || f["a.stated"] != 0 {
		t.Errorf("%v", f)
	}
	text, err := os.ReadFile(filepath.Join(out, registration.File))
	if err != nil {
		t.Fatal(err)
	}
	r, err := registration.Read(text)
	if err != nil || len(r.Variants) < 2 || r.Variants[0].File != "a.onnx" || len(r.Variants)+len(r.Dropped) != 3 || r.Data == "" {
		t.Fatalf("%+v, %v", r, err)
	}
	var want []string
	for _, v := range r.Variants[1:] {
		want = append(want, v.File)
		if !v.Generated || v.Accuracy == nil || v.Accuracy.Rows != 60 || v.MemoryMB <= 0 || v.LatencyMS >= r.Variants[0].LatencyMS {
			t.Errorf("%+v", v)
		}
	}
	want = append(want, ".lock", "mine.onnx", tableFile, registration.File)
	slices.Sort(want)
	if got := files(t, out); !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
	table, err := os.Open(filepath.Join(out, tableFile))
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	rows, err := csv.NewReader(table).ReadAll()
	if err != nil || len(rows) != 1+len(r.Variants) {
		t.Errorf("%+v, %v", rows, err)
	}
	if f := figures(t, "model", "variants", dir); f["register_s"] != 0 || f["a.accuracy"] < 50 {
		t.Errorf("the second run: %v", f)
	}
	// If a generated file is damaged, the quantizer makes it again. TestRegistrar awaits that.
	if err := os.WriteFile(filepath.Join(out, r.Variants[1].File), []byte("?"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv(environment.ReadyEnv, killedQuantizer(t))
	if _, err := execute(t, "model", "variants", dir); err == nil || !strings.Contains(err.Error(), killed) {
		t.Errorf("a damaged variant is used: %v", err)
	}
}

// Without labelled data there is agreement and no accuracy, except what the author states.
func TestModelVariantsWithoutData(t *testing.T) {
	quantizer(t)
	dir := withModels(t, "models: [{name: a, model: a.onnx, accuracy: 70.6}, {name: b, model: b.onnx}]\n", "mnist", "mnist")
	f := figures(t, "model", "variants", dir, "--out", filepath.Join(dir, "elsewhere"), "--max-loss", "100")
	if _, accuracy := f["a-int8.accuracy"]; accuracy || f["a.stated"] != 70.6 || f["b.latency_ms"] <= 0 {
		t.Errorf("%v", f)
	}
	if f["a-int8.agreement"] == 0 && f["a-int8-weights.agreement"] == 0 {
		t.Errorf("no variant has an agreement: %v", f)
	}
	if out, err := execute(t, "model", "variants", dir, "--out", filepath.Join(dir, "elsewhere"), "--max-loss", "100"); err != nil || !strings.Contains(out, "70.6 %, stated") || !strings.Contains(out, "unknown; agrees in") {
		t.Errorf("%s, %v", out, err)
	}
}

// killedQuantizer returns a Python that is killed as soon as it starts.
func killedQuantizer(t *testing.T) string {
	t.Helper()
	python := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(python, []byte("#!/bin/sh\nkill -9 $$\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return python
}

// A model without an int8 form has one variant, and says why.
func TestModelVariantsOfOne(t *testing.T) {
	quantizer(t)
	dir := withModels(t, "name: a\nengine: onnx\nmodel: a.onnx\n", "identity")
	out, err := execute(t, "model", "variants", dir)
	if err != nil || !strings.Contains(out, "dropped a-int8: there is no int8 model: the model has no operator") {
		t.Errorf("%s, %v", out, err)
	}
}

func TestModelVariantsRefuses(t *testing.T) {
	mnist := []string{"mnist", "mnist"}
	for want, c := range map[string]struct {
		manifest string
		models   []string
		args     []string
	}{
		"--max-loss is -1":           {"name: a\nengine: onnx\nmodel: a.onnx\n", mnist, []string{"--max-loss", "-1"}},
		"models[1] (b) has the inp":  {"models: [{name: a, model: a.onnx}, {name: b, model: b.onnx}]\n", []string{"mnist", "dssm"}, nil},
		"the name a-int8 is that of": {"models: [{name: a, model: a.onnx}, {name: a-int8, model: b.onnx}]\n", mnist, nil},
		"as that of models[0]":       {"models: [{name: a, model: a.onnx}, {name: a, model: b.onnx}]\n", mnist, nil},
		"its model has one variant":  {"engine: python\nhandler: a.onnx.py\n", []string{"mnist"}, nil},
		"validation.data: the bundl": {"models: [{name: a, model: a.onnx}]\nvalidation: {data: v.npz}\n", mnist, nil},
	} {
		dir := withModels(t, c.manifest, c.models...)
		if err := os.WriteFile(filepath.Join(dir, "a.onnx.py"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := execute(t, append([]string{"model", "variants", dir}, c.args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", c.manifest, err, want)
		}
	}
	dir := withModels(t, "models: [{name: a, model: a.onnx}]\nvalidation: {data: v.npz}\n", "mnist")
	labels := make([]int64, 40)
	labels[7] = 10
	if err := os.Rename(npz(t, labels), filepath.Join(dir, "v.npz")); err != nil {
		t.Fatal(err)
	}
	if _, err := execute(t, "model", "variants", dir); err == nil || !strings.Contains(err.Error(), "model a: labelled data: row 7 has the label 10") {
		t.Errorf("labels that do not fit: %v", err)
	}
	lock, err := LockDir(filepath.Join(dir, "variants"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, err := execute(t, "model", "variants", dir); !errors.Is(err, ErrBusy) {
		t.Errorf("a second run at once: %v", err)
	}
}
