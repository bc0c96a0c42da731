package bundle

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// script writes a program whose interpreter every machine has.
func script(dir string) error {
	return os.WriteFile(filepath.Join(dir, "handler"), []byte("#!/bin/sh\ncat\n"), 0o755)
}

func TestProgram(t *testing.T) {
	root := t.TempDir()
	manifest := Manifest{Name: "p", Process: "./handler -v", Mode: ModeHTTP, UpstreamURL: "http://127.0.0.1:3000",
		Env: map[string]string{"A": "b", "mode": "streaming"}, Network: NetworkPrivate}
	if _, err := WriteFiles(root, "docker.io/team/p:v1", manifest, script); err != nil {
		t.Fatal(err)
	}
	b, err := Open(root, "team/p:v1")
	if err != nil {
		t.Fatal(err)
	}
	if !b.IsProgram() || b.ProcessFile() != "handler" || b.Network != NetworkPrivate {
		t.Errorf("%+v", b)
	}
	want := map[string]string{"A": "b", "mode": "http", "fprocess": "./handler -v", "upstream_url": "http://127.0.0.1:3000"}
	if got := b.Environment(); !maps.Equal(got, want) {
		t.Errorf("environment %v, want %v", got, want)
	}
	if err := b.CheckModel(); !errors.Is(err, ErrProgram) || !strings.Contains(err.Error(), "com.openfaas.slo.latency") {
		t.Errorf("a program as a model: %v", err)
	}
	if err := b.CheckProgram(); err != nil {
		t.Error(err)
	}
}

func TestEnvironment(t *testing.T) {
	for _, test := range []struct {
		manifest Manifest
		want     map[string]string
	}{
		{Manifest{Engine: "onnx", Model: "m"}, map[string]string{}},
		{Manifest{Process: "cat"}, map[string]string{"fprocess": "cat", "mode": "streaming"}},
		{Manifest{Process: "cat", Mode: "serializing"}, map[string]string{"fprocess": "cat", "mode": "classic"}},
		{Manifest{Process: "cat", Env: map[string]string{"mode": "http", "fprocess": "ls"}}, map[string]string{"fprocess": "cat", "mode": "http"}},
		{Manifest{Process: "cat", Env: map[string]string{"upstream_url": "http://x"}}, map[string]string{"fprocess": "cat", "mode": "streaming", "upstream_url": "http://x"}},
	} {
		if got := test.manifest.Environment(); !maps.Equal(got, test.want) {
			t.Errorf("%+v: %v, want %v", test.manifest, got, test.want)
		}
	}
}

func TestModelIsNoProgram(t *testing.T) {
	b, err := Write(t.TempDir(), "one", Manifest{}, identity(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.CheckProgram(); !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), "com.openfaas.slo.latency") {
		t.Errorf("a model as a program: %v", err)
	}
	if err := b.CheckModel(); err != nil || b.IsProgram() {
		t.Errorf("%+v: %v", b, err)
	}
}

func TestFingerprint(t *testing.T) {
	root := t.TempDir()
	manifest := Manifest{Name: "p", Process: "./handler"}
	b, err := WriteFiles(root, "p", manifest, script)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	look := func(what string, fresh bool) {
		t.Helper()
		got, err := b.Fingerprint()
		if err != nil {
			t.Fatal(err)
		}
		if before, ok := seen[got]; ok == fresh {
			t.Errorf("%s: %s, as %q", what, got, before)
		}
		seen[got] = what
	}
	handler := filepath.Join(b.Dir, "handler")
	later := time.Now().Add(time.Second)
	look("as written", true)
	look("unchanged", false)
	for _, edit := range []struct {
		what string
		do   func() error
	}{
		{"edited in place", func() error { return os.WriteFile(handler, []byte("#!/bin/sh\ntac\n"), 0o755) }},
		{"touched", func() error { return os.Chtimes(handler, later, later) }},
		{"made private", func() error { return os.Chmod(handler, 0o700) }},
		{"a file more", func() error { return os.WriteFile(filepath.Join(b.Dir, "data"), nil, 0o644) }},
		{"a link more", func() error { return os.Symlink("data", filepath.Join(b.Dir, "link")) }},
		{"manifest edited", func() error {
			return os.WriteFile(filepath.Join(b.Dir, ManifestFile), []byte("name: q\nprocess: ./handler\n"), 0o644)
		}},
		{"replaced", func() error {
			_, err := WriteFiles(root, "p", manifest, script)
			return err
		}},
	} {
		time.Sleep(2 * time.Millisecond) // File systems keep time in ticks.
		if err := edit.do(); err != nil {
			t.Fatal(err)
		}
		look(edit.what, true)
		look(edit.what+", again", false)
	}
}

func TestWriteBuiltin(t *testing.T) {
	root := t.TempDir()
	// A user's own bundle stays.
	own, err := WriteFiles(root, "functions/alpine", Manifest{Name: "mine", Process: "./handler"}, script)
	if err != nil {
		t.Fatal(err)
	}
	var before string
	for range 2 { // The second time there is nothing to do.
		if err := WriteBuiltin(root); err != nil {
			t.Fatal(err)
		}
		b, err := Open(root, "docker.io/theaxer/redirector:latest")
		if err != nil {
			t.Fatal(err)
		}
		print, err := b.Fingerprint()
		if err != nil || before != "" && print != before {
			t.Errorf("written again: %v", err)
		}
		before = print
		if b.Environment()["destination"] != "https://google.com" || b.mode() != ModeHTTP {
			t.Errorf("%+v", b)
		}
	}
	if b, err := Open(root, "functions/alpine:latest"); err != nil || b.Name != own.Name {
		t.Errorf("%+v, %v", b, err)
	}
	if err := os.RemoveAll(own.Dir); err != nil {
		t.Fatal(err)
	}
	if err := WriteBuiltin(root); err != nil {
		t.Fatal(err)
	}
	if b, err := Open(root, "functions/alpine:latest"); err != nil || b.Process != "cat" || b.mode() != ModeClassic {
		t.Errorf("%+v, %v", b, err)
	}
	left, err := os.ReadDir(filepath.Join(root, StagingDir))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := WriteBuiltin("/dev/null/root"); err == nil {
		t.Error("bundles were written where none can be")
	}
}
