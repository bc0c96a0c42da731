package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command/importing"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// The command writes bundles and a stack.yml that a provider takes, and installs what is ready.
func TestImport(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	dir := t.TempDir()
	m, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	version := filepath.Join(dir, "Digits_1", "1")
	if err := os.MkdirAll(version, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := m.WriteFile(filepath.Join(version, "model.onnx")); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	run := func(args ...string) (string, error) {
		c := newImportCommand()
		var said bytes.Buffer
		c.SetOut(&said)
		c.SetErr(&said)
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs(append([]string{"--out", out}, args...))
		err := c.ExecuteContext(t.Context())
		return said.String(), err
	}
	text, err := run(dir, "--dry-run", "-o", "json")
	var im importing.Import
	if wrong := json.Unmarshal([]byte(text), &im); err != nil || wrong != nil || im.Models[0].Function != "digits-1" {
		t.Fatal(text, err, wrong)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Error(err)
	}
	if text, err = run("triton", dir, "--slo", "1s", "--install"); err != nil || !strings.Contains(text, "1 ready, 0 unfinished") {
		t.Fatal(text, err)
	}
	functions, _, err := readStack(filepath.Join(out, importing.StackFile))
	if err != nil || len(functions) != 1 || functions[0].slo().String() != "1s" {
		t.Fatal(functions, err)
	}
	state, err := stateDir()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bundle.Open(filepath.Join(state, "bundles"), functions[0].Image); err != nil {
		t.Error(err)
	}
	for want, args := range map[string][]string{
		"exists and is not empty": {dir}, "--slo 1h0m0s": {dir, "--slo", "1h"}, "the only path": {"-", dir},
		"no effect with --dry-run": {dir, "--dry-run", "--install"}, "faas-infer-kubernetes import": {"faas-netes"},
		"it is no mlserver": {"mlserver", dir}, "--out is empty": {dir, "--out", ""},
	} {
		if text, err := run(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %s, %v", args, text, err)
		}
	}
}
