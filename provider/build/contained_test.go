package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestContained(t *testing.T) {
	for _, test := range []struct {
		name  string
		links map[string]string
		ok    bool
	}{
		{"beside", map[string]string{"l": "file"}, true},
		{"up and down", map[string]string{"d/e/l": "../../file"}, true},
		{"to the directory itself", map[string]string{"d/l": ".."}, true},
		{"to nothing", map[string]string{"l": "d/nothing"}, true},
		{"over another", map[string]string{"a": "d", "l": "a/e"}, true},
		{"a chain", map[string]string{"a": "b", "b": "c", "c": "file"}, true},
		{"absolute", map[string]string{"l": "/etc"}, false},
		{"absolute and inside", map[string]string{"l": "DIR/file"}, false},
		{"up", map[string]string{"l": ".."}, false},
		{"up and back", map[string]string{"l": "../NAME/file"}, false},
		{"up over another", map[string]string{"d/e/a": "../..", "l": "d/e/a/.."}, false},
		{"up over another to nothing", map[string]string{"d/e/a": "../..", "l": "d/e/a/../nothing"}, false},
		{"up after nothing", map[string]string{"l": "nothing/../../x"}, false},
		{"a circle", map[string]string{"a": "b", "b": "a"}, false},
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "d/e"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		for name, target := range test.links {
			target = strings.NewReplacer("DIR", dir, "NAME", filepath.Base(dir)).Replace(target)
			if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := Contained(dir); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestLocalName(t *testing.T) {
	for name, want := range map[string]string{
		"context": ".", "context/": ".", "./context": ".", "context/a": "a", "./context//a/./b/": "a/b", "context/a..b/...": "a..b/...",
	} {
		if got, err := localName(name); err != nil || got != want {
			t.Errorf("%q is %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"", ".", "..", "/", "/context/a", "contexts/a", "a/context/b", "context/..", "context/a/..", "../context/a", strings.Repeat("a", maxName+1)} {
		if got, err := localName(name); err == nil {
			t.Errorf("%q is %q", name, got)
		}
	}
}
