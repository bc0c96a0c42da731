package command

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/bundle"
)

func TestBundle(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "handler"), []byte("#!/bin/sh\ncat\n"), 0o700),
		os.Symlink("handler", filepath.Join(dir, "link")), os.Mkdir(filepath.Join(dir, "sub"), 0o700)); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		c := newBundleCommand()
		var out bytes.Buffer
		c.SetOut(&out)
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs(append([]string{"--root", root}, args...))
		err := c.ExecuteContext(t.Context())
		return out.String(), err
	}
	out, err := run(dir, "--image", "team/greet:v1", "--process", "./handler", "--mode", "serializing", "--env", "A=b,C=d")
	if err != nil || !strings.Contains(out, "image: team/greet:v1") {
		t.Fatal(out, err)
	}
	b, err := bundle.Open(root, "team/greet:v1")
	if err != nil {
		t.Fatal(err)
	}
	env := b.Environment()
	if b.Name != "greet" || env["mode"] != "classic" || env["A"] != "b" || env["C"] != "d" || env["fprocess"] != "./handler" {
		t.Errorf("%+v, %v", b, env)
	}
	if target, err := os.Readlink(filepath.Join(b.Dir, "link")); err != nil || target != "handler" {
		t.Errorf("link to %q, %v", target, err)
	}
	if info, err := os.Stat(filepath.Join(b.Dir, "handler")); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("%v, %v", info, err)
	}
	// A bundle's own manifest counts, but for what flags say.
	if _, err := run(b.Dir, "--image", "again", "--mode", "http", "--env", "A=z"); err != nil {
		t.Fatal(err)
	}
	again, err := bundle.Open(root, "again")
	if err != nil {
		t.Fatal(err)
	}
	if env := again.Environment(); again.Name != "greet" || env["mode"] != "http" || env["A"] != "z" || env["C"] != "d" {
		t.Errorf("%+v", again)
	}
}

// Models and directories have one command, whose default is where "faas-infer up" finds bundles.
func TestBundleOfAModel(t *testing.T) {
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	t.Chdir(t.TempDir())
	if err := os.Mkdir("mnist", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ call, engine string }{
		{"bundle mnist --image a:v1", bundle.EngineONNX}, {"model bundle mnist --image b:v1 --seed 2", bundle.EngineONNX}, {"bundle ./mnist --image c:v1 --process cat", ""},
	} {
		if _, err := execute(t, strings.Fields(c.call)...); err != nil {
			t.Fatalf("%s: %v", c.call, err)
		}
		b, err := bundle.Open(filepath.Join(state, "faas-infer", "bundles"), strings.Fields(c.call)[slices.Index(strings.Fields(c.call), "--image")+1])
		if err != nil || b.IsProgram() != (c.engine == "") {
			t.Errorf("%s: %+v, %v", c.call, b, err)
		}
	}
	if _, err := execute(t, "bundle", "mnist", "--image", "d:v1", "--process", "cat"); err == nil || !strings.Contains(err.Error(), "./NAME") {
		t.Errorf("a model with a process: %v", err)
	}
}

func TestBundleRefuses(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "bundle.yaml"), []byte("nam: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args  []string
		words string
	}{
		{[]string{dir}, "image"},
		{[]string{dir, "--image", "a"}, "neither a model nor a program"},
		{[]string{dir, "--image", "../a", "--process", "cat"}, "invalid image name"},
		{[]string{dir, "--image", "a", "--process", "./handler"}, `no file "handler"`},
		{[]string{dir, "--image", "a", "--process", "cat", "--mode", "fast"}, `mode is "fast"`},
		{[]string{filepath.Join(dir, "absent"), "--image", "a", "--process", "cat"}, "absent"},
		{[]string{broken, "--image", "a", "--process", "cat"}, "nam"},
		{[]string{root, "--image", "a", "--process", "cat"}, "give another one"},
		{[]string{filepath.Dir(root), "--image", "a", "--process", "cat"}, "give another one"},
	} {
		c := newBundleCommand()
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs(append([]string{"--root", root}, test.args...))
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%v: %v, want %q", test.args, err, test.words)
		}
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) > 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
