package command

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider/children"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The check at deployment, model check, model show and model bundle refuse a file of another
// format in the same words.
func TestForeignFilesAreRefused(t *testing.T) {
	for head, want := range map[string]string{
		"GGUF\x03\x00\x00\x00":                               "llama-cpp-python in requirements.txt",
		"CBM1\x90\x2f\x00\x00":                               "faas-infer model convert FILE model.onnx",
		"\x80\x04\x95\x0a\x00\x00\x00\x00\x00\x00\x00}\x94.": "template python-infer",
	} {
		file := filepath.Join(t.TempDir(), "model.onnx")
		write(t, file, head)
		deployed := new(children.Models).CheckFile(t.Context(), file)
		_, checked := execute(t, "model", "check", file, "--prepared", t.TempDir())
		_, shown := execute(t, "model", "show", file)
		_, bundled := execute(t, "model", "bundle", file, "--root", t.TempDir(), "--image", "m:latest")
		for what, err := range map[string]error{"deploy": deployed, "check": checked, "show": shown, "bundle": bundled} {
			if err == nil || !strings.Contains(err.Error(), "not an ONNX model: it is") || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
	}
}

func TestMakeBundles(t *testing.T) {
	root := t.TempDir()
	var log bytes.Buffer
	functions := []stackFunction{{}, {}}
	functions[0].Image, functions[1].Image = "identity:latest", "somebody/else:1"
	for range 2 { // The second time there is nothing to do.
		if err := makeBundles(functions, root, &log); err != nil {
			t.Fatal(err)
		}
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "identity:latest") {
		t.Errorf("log %q", got)
	}
	if _, err := bundle.Open(root, "identity:latest"); err != nil {
		t.Error(err)
	}
}

func TestProviderFlags(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	good := func() *ProviderFlags {
		return &ProviderFlags{policy: "shared", keepAlive: time.Minute, coldWait: time.Second, drain: time.Second, queueLimit: 1, maxBody: 1, bodyTimeout: time.Second, answerTimeout: time.Second, logLevel: "info"}
	}
	f := good()
	if err := f.complete(); err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(state, "faas-infer"); f.state != want || f.bundles != filepath.Join(want, "bundles") || f.prepared == "" {
		t.Errorf("state %q, bundles %q, prepared %q", f.state, f.bundles, f.prepared)
	}
	f = good()
	f.bundles, f.prepared, f.functionSecrets = "bundles", "prepared", "secrets"
	t.Chdir(t.TempDir())
	if err := f.complete(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{f.bundles, f.prepared, f.functionSecrets} {
		if !filepath.IsAbs(dir) {
			t.Errorf("%q is relative, instances have another working directory", dir)
		}
	}
	blocked := filepath.Join(t.TempDir(), "file")
	write(t, blocked, "")
	for want, change := range map[string]func(*ProviderFlags){
		"--keep-alive":                 func(f *ProviderFlags) { f.keepAlive = -1 },
		"--cold-wait":                  func(f *ProviderFlags) { f.coldWait = -1 },
		"--drain":                      func(f *ProviderFlags) { f.drain = -1 },
		"--queue-limit":                func(f *ProviderFlags) { f.queueLimit = 0 },
		"--max-body":                   func(f *ProviderFlags) { f.maxBody = 0 },
		"--body-timeout":               func(f *ProviderFlags) { f.bodyTimeout = 0 },
		"--max-held":                   func(f *ProviderFlags) { f.maxBody, f.maxHeld = 10, 9 },
		"one-to-one, infless":          func(f *ProviderFlags) { f.policy = "best" },
		"--bundles":                    func(f *ProviderFlags) { f.bundles = filepath.Join(blocked, "below") },
		"basic-auth-user":              func(f *ProviderFlags) { f.secrets = state },
		"it must be debug, info, warn": func(f *ProviderFlags) { f.logLevel = "loud" },
		"--listen":                     func(f *ProviderFlags) { f.listen = "nowhere:at:all" },
	} {
		f := good()
		change(f)
		if _, err := f.start(t.Context(), machine{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}
